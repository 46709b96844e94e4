"""What a command's exit status means."""

SUCCEEDED, FAILED, BAD_INPUT, WAITS = 0, 1, 2, 3
