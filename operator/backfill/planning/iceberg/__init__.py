"""The only part of planning that knows PyIceberg: tables pinned to a snapshot, and their files as plain columns."""
