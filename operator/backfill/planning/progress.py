"""What a planner tells of its work: it crosses from the planner's process to whoever waits for the
plan.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlanningProgress:
    """How far the reading of one source's metadata is."""

    source: str
    manifests_done: int
    manifests: int
    files: int
    """Data files met so far that may hold rows of the range."""
