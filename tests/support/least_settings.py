"""Settings of a driver with nothing but what it must have."""

from typing import Final

LEAST_SETTINGS: Final = {
    "backfill": "b",
    "namespace": "default",
    "uid": "u",
    "attempt": 1,
    "planId": "p",
    "plan": "/plan",
    "checkpoints": "/checkpoints",
    "channel": "/channel",
    "window": {"start": "2024-03-01T00:00:00Z", "end": "2024-03-02T00:00:00Z"},
    "sources": [],
    "outputs": [],
    "mainFile": "/main.py",
}
