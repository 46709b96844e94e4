"""Decisions before a run: planning, and whether the input is complete."""
