"""Turning the program's readers and writers to history and branches."""
