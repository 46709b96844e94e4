"""Jobs in pods of the Backfill's namespace."""
