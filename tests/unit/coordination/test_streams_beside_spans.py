"""Streams and queries run by spans in one driver: each goes on in the end, and streams keep their
alignment with all of them.
"""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from timelines import timeline

from backfill.api.quantities import from_us
from backfill.coordination.released_steps import release, release_ahead
from backfill.coordination.timeline import Timeline
from backfill.coordination.watermarks import watermarks
from backfill.protocol.split_assignment import QueryProgress, SourceProgress, SplitAssignmentStatus

AT_ONCE = 2


@dataclass
class Spans:
    """A query run by spans, of each of which is known where it ends and where what it reads."""

    spans: list[tuple[int, int]]
    begun: int = 0
    done: int = 0

    @property
    def committed(self) -> int:
        return self.spans[self.done - 1][0] if self.done else 0

    @property
    def reads_ahead(self) -> int:
        ahead = self.spans[self.done : self.done + AT_ONCE]
        return max(end for _, end in ahead) - self.committed if ahead else 0

    def turn(self, released: int) -> bool:
        """Begins what is released, then commits the first span at work; False if it has to wait."""
        while (
            self.begun < min(self.done + AT_ONCE, len(self.spans))
            and self.spans[self.begun][1] <= released
        ):
            self.begun += 1
        if self.done == self.begun:
            return False
        self.done += 1
        return True


@dataclass
class Driver:
    """All queries, and what the controller has released to them."""

    line: Timeline
    streams: list[int]
    by_spans: list[Spans]
    released: int = 0
    ahead: int = 0
    watermark_us: int = field(init=False)

    def __post_init__(self) -> None:
        self.reconcile()

    def reconcile(self) -> None:
        committed = [*self.streams, *(query.committed for query in self.by_spans)]
        status = SplitAssignmentStatus(
            attempt=1,
            phase="Running",
            heartbeat=from_us(0),
            queries=tuple(
                QueryProgress(name=str(n), sources=(SourceProgress(name="a", committed=steps),))
                for n, steps in enumerate(committed)
            ),
        )
        self.watermark_us = watermarks(self.line, status).global_us
        self.released = release(self.line, self.watermark_us, self.released)
        wanted = max((query.reads_ahead for query in self.by_spans), default=0)
        self.ahead = release_ahead(self.line, self.watermark_us, self.ahead, wanted)

    def turn(self, number: int) -> bool:
        """One query goes on; False if it has to wait, or is done."""
        if number >= len(self.streams):
            return self.by_spans[number - len(self.streams)].turn(max(self.released, self.ahead))
        step = self.streams[number]
        if step == self.line.steps or step >= self.released:
            return False
        slowest = min([*self.streams, *(query.committed for query in self.by_spans)])
        exempt = step == slowest or not self.line.aligned
        assert (
            exempt or self.line.ends_us[step] <= self.watermark_us + self.line.max_misalignment_us
        )
        self.streams[number] += 1
        return True

    def turn_all(self) -> bool:
        """Each query goes on; False if all have to wait, or are done."""
        turns = [self.turn(number) for number in range(len(self.streams) + len(self.by_spans))]
        return any(turns)


@st.composite
def drivers(draw: st.DrawFn) -> Driver:
    steps = draw(st.integers(1, 12))
    line = timeline(*range(0, 5 * steps, 5), rows={"a": (1,) * steps}, aligned=draw(st.booleans()))
    by_spans = []
    for _ in range(draw(st.integers(1, 3))):
        ends = sorted({*draw(st.lists(st.integers(1, steps), max_size=4)), steps})
        spans = [(end, min(end + draw(st.integers(0, 4)), steps)) for end in ends]
        by_spans.append(Spans(spans))
    return Driver(line, [0] * draw(st.integers(0, 2)), by_spans)


@given(drivers(), st.lists(st.integers(0, 4), max_size=40))
def test_all_is_committed_whoever_is_slow(driver: Driver, turns: list[int]) -> None:
    queries = len(driver.streams) + len(driver.by_spans)
    for number in turns:  # one that is not among them is very slow
        if number < queries:
            driver.turn(number)
            driver.reconcile()
    while driver.turn_all():
        driver.reconcile()
    assert driver.streams == [driver.line.steps] * len(driver.streams)
    assert all(query.committed == driver.line.steps for query in driver.by_spans)
