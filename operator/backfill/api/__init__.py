"""The resources users write and the messages between controller and driver. Imports nothing of the project."""
