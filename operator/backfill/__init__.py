"""Reprocess a streaming application's history from Iceberg, in order, aligned and exactly once."""

__version__ = "0.1.0"
