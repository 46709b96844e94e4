"""Exit statuses of commands."""

SUCCEEDED, FAILED, BAD_INPUT, WAITS = 0, 1, 2, 3
