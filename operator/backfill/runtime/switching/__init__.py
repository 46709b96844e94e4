"""Replaces the program's readers and writers by those of the backfill."""
