"""Talking to an API server: client, transport, throttle, errors, names. Knows nothing of the life
of a Backfill.
"""
