"""Commands for Backfills on a cluster.

They read and change resources; the operator does the rest.
"""
