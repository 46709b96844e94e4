"""The plan of a file, made and shown without running anything."""

from pathlib import Path


def show_plan(file: Path, namespace: str | None, *, as_json: bool) -> int:
    """Makes the plan in a temporary place and prints what it would read."""
    raise NotImplementedError
