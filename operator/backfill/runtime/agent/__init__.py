"""The driver's side of the conversation with the controller."""
