"""Queries that change rows they have written: output modes ``update`` and ``complete``."""
