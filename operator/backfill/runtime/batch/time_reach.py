"""How far in event time the rows are from a result that depends on them: the answer of
:mod:`backfill.runtime.batch.look_back`, and the arithmetic that it is found with.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Reach:
    """Which rows of a source a result with event time a depends on: those with event times in
    [a - back, a + ahead].

    ``back_us`` and ``ahead_us`` are in microseconds, either may be negative, and both ends belong
    to the stretch. Rows outside it make no difference, whether they are there or not.
    """

    back_us: int
    ahead_us: int
    delay_us: int
    """How long after its event time a row may arrive: the longest delay of the query's watermarks,
    of which a stream goes by the least; 0 without a watermark."""
    event_column: str | None
    """The source's column that holds the event time, nested ones with dots; None where it is
    computed. Where it is the source's ``timestampColumn``, event time is arrival time."""
    sessions_back: int = 0
    """How many times the length of the longest session must be added to ``back_us``."""
    sessions_ahead: int = 0
    """The same for ``ahead_us``."""

    def with_sessions(self, longest_us: int) -> "Reach":
        """The same, where no session is longer than this, from its start to its end."""
        return Reach(
            self.back_us + self.sessions_back * longest_us,
            self.ahead_us + self.sessions_ahead * longest_us,
            self.delay_us,
            self.event_column,
        )


@dataclass(frozen=True, slots=True)
class Sessions:
    """The session windows of one aggregation."""

    edge: Literal["start", "end"] | None = None
    """Which edge of a session says whether a result depends on it; None where neither does, so
    that all must be thought to."""
    back_us: int = 0
    """A result with event time a depends on sessions with this edge in [a - back, a + ahead]."""
    ahead_us: int = 0
    closed_by: Mapping[str, Reach] | None = None
    """By source, which rows a session depends on after its end; None where results have no such
    edge."""
    alone: bool = False
    """Whether each result is one of these sessions, which says by itself whether it is closed."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """What a query's results depend on."""

    sources: Mapping[str, Reach]
    stateless: bool = False
    """Every result depends on one row of one source: any rows may be read by themselves, whatever
    their event times."""
    session_gap_us: int | None = None
    """The longest gap of the query's session windows, if it has some. A session's length is unknown
    before it is read."""
    sessions: tuple[Sessions, ...] = ()
    """Those of its aggregations by session window, the ones below others first and those of a
    node from left to right."""


@dataclass(frozen=True, slots=True)
class Unbounded:
    """There is no such stretch, or it is unknown."""

    reason: str
    """One sentence that names what of the query it is."""
    lacks_time: bool = False
    """Whether it may be known with a ``timestampColumn`` of the output."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A length of time: microseconds, and a number of sessions of unknown length."""

    us: float
    sessions: int = 0

    def __add__(self, other: "Extent") -> "Extent":
        """Both, one after the other."""
        return Extent(self.us + other.us, self.sessions + other.sessions)

    @property
    def known(self) -> bool:
        """Whether it is finite."""
        return self.us < math.inf


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Where one time may be, seen from another one: from ``back`` before it to ``ahead`` after it,
    both included.
    """

    back: Extent
    ahead: Extent

    @classmethod
    def of(cls, least: float, greatest: float) -> "TimeRange":
        """The other time is at least and at most so much later, in microseconds."""
        return cls(Extent(-least), Extent(greatest))

    @property
    def known(self) -> bool:
        """Whether both ends are finite."""
        return self.back.known and self.ahead.known

    @property
    def exact(self) -> bool:
        """Whether it is a single moment."""
        return self.known and self.back + self.ahead == Extent(0)

    def then(self, other: "TimeRange") -> "TimeRange":
        """Where a third time may be, seen from the first one. ``other`` says where it may be, seen
        from the second one.
        """
        return TimeRange(self.back + other.back, self.ahead + other.ahead)

    def reverse(self) -> "TimeRange":
        """Where the first time may be, seen from the second one."""
        return TimeRange(self.ahead, self.back)

    def hull(self, other: "TimeRange") -> "TimeRange":
        """The smallest range that contains both."""
        return TimeRange(_longer(self.back, other.back), _longer(self.ahead, other.ahead))

    def meet(self, other: "TimeRange") -> "TimeRange":
        """What the two have in common."""
        return TimeRange(_shorter(self.back, other.back), _shorter(self.ahead, other.ahead))


SAME = TimeRange.of(0, 0)
ANYWHERE = TimeRange.of(-math.inf, math.inf)


def _longer(one: Extent, other: Extent) -> Extent:
    return Extent(max(one.us, other.us), max(one.sessions, other.sessions))


def _shorter(one: Extent, other: Extent) -> Extent:
    """One of the two, for each of them is right; a session may be longer than any constant."""
    return min(one, other, key=lambda each: (not each.known, each.sessions, each.us))
