"""Plans with rows, written by hand or made by hypothesis."""

from hypothesis import strategies as st
from simulated_run import History, Row

from backfill.coordination.timeline import SourceTimeline, Timeline

MINUTE_US = 60_000_000


def timeline(
    *starts_min: int,
    rows: dict[str, tuple[int, ...]],
    length_min: int = 5,
    max_misalignment_min: int = 10,
    aligned: bool = True,
) -> Timeline:
    """Steps of one length at the given minutes; by default a step spans half of the allowed
    misalignment.
    """
    return Timeline(
        starts_us=tuple(start * MINUTE_US for start in starts_min),
        ends_us=tuple((start + length_min) * MINUTE_US for start in starts_min),
        read_end_us=(starts_min[-1] + length_min) * MINUTE_US,
        sources=tuple(SourceTimeline(name, counts) for name, counts in rows.items()),
        max_misalignment_us=max_misalignment_min * MINUTE_US,
        aligned=aligned,
    )


def history(line: Timeline, queries: dict[str, tuple[str, ...]], lateness_us: int = 0) -> History:
    """A history whose rows lie as late in their steps as they may."""
    rows = {
        (source.name, step): tuple(
            Row(source.name, step, n, line.ends_us[step] - 1 + lateness_us) for n in range(count)
        )
        for source in line.sources
        for step, count in enumerate(source.step_rows)
    }
    return History(line, lateness_us, rows, queries)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """One to four sources with any skew, gaps and empty stretches, read by one to three queries.

    Every source is read by some query, and steps span at most half of the allowed misalignment, as
    in a plan.
    """
    max_misalignment = draw(st.integers(2, 20))
    lateness = draw(st.integers(0, 5))
    starts, ends, now = [], [], draw(st.integers(-10, 10))
    for _ in range(draw(st.integers(1, 8))):
        now += draw(st.integers(0, 3) | st.integers(0, 100))
        starts.append(now)
        now += draw(st.integers(1, max_misalignment // 2))
        ends.append(now)
    names = [f"s{n}" for n in range(draw(st.integers(1, 4)))]
    rows = {
        (name, step): tuple(
            Row(name, step, number, draw(st.integers(starts[step], ends[step] - 1 + lateness)))
            for number in range(draw(st.sampled_from((0, 0, 1, 3))))
        )
        for name in names
        for step in range(len(starts))
    }
    readers = {
        f"q{n}": draw(st.sets(st.sampled_from(names), min_size=1))
        for n in range(draw(st.integers(1, 3)))
    }
    readers["q0"] |= set(names) - set().union(*readers.values())
    sources = tuple(
        SourceTimeline(name, tuple(len(rows[name, step]) for step in range(len(starts))))
        for name in names
    )
    line = Timeline(
        tuple(starts), tuple(ends), now + draw(st.integers(0, 10)), sources, max_misalignment
    )
    return History(
        line, lateness, rows, {query: tuple(sorted(read)) for query, read in readers.items()}
    )
