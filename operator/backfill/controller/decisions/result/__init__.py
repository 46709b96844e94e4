"""Decisions about what a run has made: approval, publishing, undo, removal."""
