"""Commands for Backfills on this machine, which run them in the foreground."""
