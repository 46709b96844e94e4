"""Pure functions from what was observed to what is done next, one module for each stage of a
Backfill's life.
"""
