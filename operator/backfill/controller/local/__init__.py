"""The controller's interfaces on one machine: files, processes and a loop."""
