"""Finds out what a program reads and writes, before anything is known of it."""
