"""From an Iceberg catalog to an immutable plan:
files, splits, steps, and the proof of their order.
"""
