"""Runs queries as batch jobs over spans of steps, without state."""
