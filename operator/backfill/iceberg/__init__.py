"""Catalogs, storage, values and timestamps of Iceberg. Knows nothing of plans."""
