"""Access to an API server. Nothing here knows what a Backfill goes through."""
