"""Compares the staged result of an output with production, as a Spark job of the same driver."""
