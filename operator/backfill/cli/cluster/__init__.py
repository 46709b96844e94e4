"""The commands on Backfills of a cluster: they read and change resources, and the operator does the rest."""
