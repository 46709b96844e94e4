"""The driver's side of the messages with the controller."""
