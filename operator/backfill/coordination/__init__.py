"""What may be read next, with how many executors, and when it will be done: pure functions, no I/O, no clock."""
