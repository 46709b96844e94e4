"""Finds out what an application reads and writes, and how much to read around the window."""
