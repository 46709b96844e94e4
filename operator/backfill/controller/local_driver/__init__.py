"""Drivers as processes of this machine."""
