"""Hands the state that history has built over to live Kafka, where the application continues."""
