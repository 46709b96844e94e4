"""The part of a plan that coordination uses:
the steps, and how many rows each source has in them.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceTimeline:
    """Rows of one source in each step."""

    name: str
    """Name of the source."""
    step_rows: Sequence[int]
    """Number of rows of each step, as planned; zero if the source has none."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steps of a plan. Times are microseconds since the epoch, UTC."""

    starts_us: Sequence[int]
    """Start of each step, strictly increasing. No row of the step, of any source, is older."""
    ends_us: Sequence[int]
    """End of each step (exclusive), not after the next start."""
    read_end_us: int
    """End of what is read (exclusive), not before the last step's end."""
    sources: tuple[SourceTimeline, ...]
    """Every source of the plan, including those without rows."""
    max_misalignment_us: int
    """How far after the global watermark a step may end when it is read."""
    aligned: bool = True
    """Whether steps wait for the watermark.
    False for policy ``Unordered``: every step may be read at once.
    """

    @property
    def steps(self) -> int:
        """Number of steps that read rows. Offset ``steps + 1`` is the flush."""
        return len(self.starts_us)

    @property
    def rows(self) -> int:
        """Number of rows of all sources, as planned."""
        return sum(sum(source.step_rows) for source in self.sources)

    def position_us(self, step: int) -> int:
        """Start of a step; after the last step, the end of what is read."""
        return self.starts_us[step] if step < self.steps else self.read_end_us
