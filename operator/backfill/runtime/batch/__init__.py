"""Runs of steps as batch queries: the program's captured plan over bounded reads of its sources."""
