"""Commands and their screens."""
