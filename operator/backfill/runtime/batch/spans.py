"""Spans: runs of consecutive steps that one batch job computes. The plan does not know of them.

A span of a query that handles rows one by one reads the steps whose results it gives. A span of any
other query gives the results of a stretch of event time, and reads all steps with rows that these
depend on, also before and after the stretch. So neighbours read some steps twice, and each result
is given once: by the span in whose stretch its time is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from backfill.outputs.window_rows import Stretch
from backfill.planning.plan import PlanHeader
from backfill.runtime.batch.arrival_lags import Arrives, Assumed, StepBounds
from backfill.runtime.batch.time_reach import Reach

_FULL_STEPS = 3
"""Full steps of a span: about half a minute of work, of which starting and committing a span is a
small part.
"""
_LEAST_TIMES_OVERLAP = 10
"""How many times longer than what it shares with its neighbours a span should be."""
_TIMES_LARGER = 10
"""How many times larger than three full steps a span becomes for that."""
_TIMES_OVERLAP_OF_LARGE = 2
"""How many times longer than what it shares with its neighbours a larger one has to be: more is
read twice, but what is lost with a span that is killed, and the time between commits, stay smaller.
"""
_STRIPS = 50
"""What a span computes twice, to compare it with the span before it, is this many times shorter
than it is.
"""


@dataclass(frozen=True, slots=True)
class Span:
    """What one batch job reads and gives."""

    steps: range
    """The steps that count as committed with it."""
    reads: Mapping[str, range]
    """The steps that it reads of each source."""
    stretch: Stretch | None = None
    """The results that it gives; None is all that the rows it reads have."""
    session_us: int = 0
    """What it reads is enough if no session that its results depend on is longer."""
    before_us: int = 0
    """How long before these it reads enough for results that the span before it gives, so that both
    can be compared.
    """
    after_us: int = 0
    """How long after these it does, for results that the span after it gives."""

    @property
    def read_end(self) -> int:
        """The end of what it reads, of all sources (exclusive)."""
        return max(self.steps.stop, *(steps.stop for steps in self.reads.values()))


@dataclass(frozen=True, slots=True)
class LookAround:
    """Which rows of a source the results of a stretch of event time depend on."""

    back_us: int
    """Those that happened at most this long before it begins."""
    ahead_us: int
    """Those that happened at most this long after it ends."""
    arrives: Arrives
    """When they have arrived."""

    @classmethod
    def of(cls, reach: Reach, arrival_column: str, allowed_lateness_us: int) -> "LookAround":
        """What is assumed of rows of which nothing is known: they arrive at most the watermark's
        delay after their event time, and at most ``allowed_lateness_us`` before it; with it, where
        the event time is the arrival time.
        """
        same = reach.event_column == arrival_column
        arrives = Assumed(0, 0) if same else Assumed(allowed_lateness_us, reach.delay_us)
        return cls(reach.back_us, reach.ahead_us, arrives)

    @property
    def after_us(self) -> int:
        """How long after a result more rows that it depends on may arrive, as far as is known."""
        return self.ahead_us + self.arrives.late_us


def row_wise_spans(header: PlanHeader, sources: Iterable[str], committed: int) -> list[Span]:
    """The spans of a query each of whose results depends on one row: every span reads the steps
    that it gives.

    ``committed`` steps are done. A span reads as many bytes as three full steps, but never less
    than a step.
    """
    read = sorted(sources)
    return [
        Span(steps, dict.fromkeys(read, steps))
        for steps in _packed(header, read, committed, lambda _begin, _end, _large: True)
    ]


def closed_until_us(header: PlanHeader, around: Iterable[LookAround]) -> int:
    """Results of the window before this time, in microseconds, cannot change by rows after those
    that the plan reads.
    """
    inputs = header.inputs
    return min(inputs.end_us, inputs.read_end_us - max(each.after_us for each in around))


def spans_of_time(
    header: PlanHeader,
    around: Mapping[str, LookAround],
    bounds: Mapping[str, StepBounds],
    committed: int,
    closed_us: int,
) -> list[Span]:
    """The spans of a query whose results depend on the rows ``around`` them, by source.

    Results outside the window are in no span. The steps before the window count as committed with
    the first span, and those after it with the last one.

    Args:
        bounds: the arrival times of each source's steps.
        committed: steps that are done.
        closed_us: results of the window from this time on are left open.
    """

    def may_end(begin: int, end: int, large: bool) -> bool:
        start_us, end_us = _cut_us(header, begin), _cut_us(header, end)
        both = _arrived(end_us, end_us, around).values()
        shared_us = max(end - first for first, end in both)
        times = _TIMES_OVERLAP_OF_LARGE if large else _LEAST_TIMES_OVERLAP
        return start_us + times * shared_us <= end_us < closed_us

    spans = []
    for steps in _packed(header, sorted(around), committed, may_end):
        start_us, end_us = _cut_us(header, steps.start), _cut_us(header, steps.stop)
        reads = reads_of(start_us, end_us, around, bounds)
        spans.append(Span(steps, reads, stretch_of(start_us, end_us, closed_us)))
    return spans


def left_from(committed: int, cut: Callable[[int], list[Span]]) -> list[Span]:
    """The spans that are left once ``committed`` steps are done, as they were cut before that, so
    that every attempt reads the same; others where these steps are not those of whole spans.

    Args:
        committed: steps that are done.
        cut: the spans from a step on.
    """
    left = [span for span in cut(0) if span.steps.start >= committed]
    return left if left and left[0].steps.start == committed else cut(committed)


def stretch_of(start_us: int, end_us: int, closed_us: int) -> Stretch:
    """Results from one time to before another, those from ``closed_us`` on left open."""
    return Stretch(start_us, max(min(end_us, closed_us), start_us), end_us)


def reads_of(
    start_us: int, end_us: int, around: Mapping[str, LookAround], bounds: Mapping[str, StepBounds]
) -> dict[str, range]:
    """The steps of each source on which results from one time to before another depend."""
    arrived = _arrived(start_us, end_us, around)
    return {source: bounds[source].between(*each) for source, each in arrived.items()}


def _arrived(
    start_us: int, end_us: int, around: Mapping[str, LookAround]
) -> dict[str, tuple[int, int]]:
    """From when to before when the rows of each source arrived on which they depend."""
    closed_us = end_us + max(each.ahead_us for each in around.values())
    return {
        source: each.arrives.between(start_us - each.back_us, end_us + each.ahead_us, closed_us)
        for source, each in around.items()
    }


def with_strips(
    spans: Sequence[Span], around: Mapping[str, LookAround], bounds: Mapping[str, StepBounds]
) -> list[Span]:
    """The same spans, of which one of each two that meet reads so much more that it has some
    results of the other one, too: the one that has to read fewer steps for that.
    """
    found = list(spans)
    for number in range(1, len(found)):
        before, after = found[number - 1 : number + 1]
        if before.stretch is None or after.stretch is None:
            continue
        lengths = (each.end_us - each.start_us for each in (before.stretch, after.stretch))
        strip_us = min(lengths) // _STRIPS
        further = _reading(replace(before, after_us=strip_us), around, bounds)
        earlier = _reading(replace(after, before_us=strip_us), around, bounds)
        if _steps_read(further) - _steps_read(before) < _steps_read(earlier) - _steps_read(after):
            found[number - 1] = further
        else:
            found[number] = earlier
    return found


def _reading(
    span: Span, around: Mapping[str, LookAround], bounds: Mapping[str, StepBounds]
) -> Span:
    """A span that reads all of its strips."""
    assert span.stretch is not None  # no span of a query with state is row-wise
    start_us, end_us = span.stretch.start_us - span.before_us, span.stretch.open_us + span.after_us
    return replace(span, reads=reads_of(start_us, end_us, around, bounds))


def _steps_read(span: Span) -> int:
    return sum(map(len, span.reads.values()))


def _cut_us(header: PlanHeader, step: int) -> int:
    """The event time that separates results of the steps before ``step`` from those after it."""
    inputs = header.inputs
    if step == 0:
        return inputs.start_us
    if step == header.steps:
        return inputs.end_us
    return min(max(header.step_starts_us[step], inputs.start_us), inputs.end_us)


def _packed(
    header: PlanHeader, sources: list[str], first: int, may_end: Callable[[int, int, bool], bool]
) -> Iterator[range]:
    """The steps from ``first`` on, in runs of three full steps where a run may begin and end there,
    which ``may_end`` says, also by whether it is many times larger.
    """
    each = [source.step_bytes for source in header.sources if source.name in sources]
    sizes = [sum(step) for step in zip(*each, strict=True)]
    most = _FULL_STEPS * header.inputs.target_step_bytes
    begin, size = first, 0
    for step in range(first, header.steps):
        large = size > _TIMES_LARGER * most
        if step > begin and size + sizes[step] > most and may_end(begin, step, large):
            yield range(begin, step)
            begin, size = step, 0
        size += sizes[step]
    if begin < header.steps:
        yield range(begin, header.steps)
