"""Iceberg's ground floor: catalogs, storage, values and timestamps. Knows nothing of plans."""
