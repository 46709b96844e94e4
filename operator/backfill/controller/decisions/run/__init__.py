"""Decisions of a run: attempts, their drivers, what is released to them."""
