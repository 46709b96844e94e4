"""One module for each stretch of a Backfill's life: ``(observed, draft) -> Next``, all of them pure."""
