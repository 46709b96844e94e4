"""What planning reads of a table: snapshot, manifests, bounds, partitions, deletes."""
