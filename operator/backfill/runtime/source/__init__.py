"""Reads the splits of a step as rows, step by step as Spark's clock asks for them."""
