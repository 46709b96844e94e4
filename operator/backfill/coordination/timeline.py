"""What coordination needs to know of a plan: when its steps lie, and how much each source has in them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceTimeline:
    """One source along the plan's steps."""

    name: str
    """The source."""
    step_rows: tuple[int, ...]
    """Rows of each step, as planned; zero where the source has nothing."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steps of one plan. All times are microseconds since the epoch, UTC."""

    starts_us: tuple[int, ...]
    """Start of each step, strictly increasing: no row of the step, of whatever source, is older."""
    ends_us: tuple[int, ...]
    """End of each step (exclusive), not after the next start."""
    read_end_us: int
    """The end of what is read (exclusive): not before the last step's end."""
    sources: tuple[SourceTimeline, ...]
    """Every source of the plan, also one without any rows."""
    max_misalignment_us: int
    """How far a step may end after the global watermark when it is read."""
    aligned: bool = True
    """False for the ``Unordered`` policy: every step may be read at once."""

    @property
    def steps(self) -> int:
        """Number of steps that read rows; offset ``steps + 1`` is the flush."""
        return len(self.starts_us)

    @property
    def rows(self) -> int:
        """Rows of all sources, as planned."""
        return sum(sum(source.step_rows) for source in self.sources)

    def position_us(self, step: int) -> int:
        """The start of a step, or the end of what is read where ``step`` is past the last one."""
        return self.starts_us[step] if step < self.steps else self.read_end_us
