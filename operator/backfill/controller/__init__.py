"""Observe, decide, act: what moves a Backfill from its resource to its published result."""
