"""Reads rows of planned files: which of them a split reads, in the columns of the table."""
