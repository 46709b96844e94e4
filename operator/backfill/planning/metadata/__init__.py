"""Reads a table's metadata for planning: snapshot, manifests, bounds, partitions, deletes."""
