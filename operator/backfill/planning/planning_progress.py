"""Progress of planning, as the process that plans reports it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlanningProgress:
    """Progress of reading one source's metadata."""

    source: str
    manifests_done: int
    manifests: int
    files: int
    """Number of files found that may hold rows of the range."""
