"""The resource: specification, status, conditions and errors."""
