"""Proposes a Backfill: pure functions from what was found of a program and its tables."""
