"""How much memory a stream's state needs at most, by what the plan reads and how long its operators
keep rows. Does not use Spark.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from backfill.planning.plan import PlanHeader

_PROMPT_ROWS = 10_000
"""Of this many consecutive rows of a source, one is assumed to pass the query's filters and to have
happened no earlier before it arrived than the watermark allows: it moves the watermark."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What an operator keeps of a source."""

    source: str
    since_us: float
    """It keeps what is made of rows whose event times are at most this many microseconds before the
    watermark; infinite where it removes nothing."""
    copies: float
    """The most entries for each row of the source; infinite if unknown."""
    entry_bytes: float
    """What an entry needs in memory; infinite if unknown."""


def most_bytes(kept: Sequence[Kept], header: PlanHeader, delay_us: int) -> float:
    """The most that the state of a stream needs in memory while it reads a plan step by step;
    infinite if it cannot be estimated.

    While a step is read, everything is there that the watermark of the steps before it has not
    removed. Of several sources the slowest moves the watermark.

    Args:
        kept: what all operators of the query keep.
        header: the plan's.
        delay_us: the longest delay of the query's watermarks.
    """
    if not kept:
        return 0.0
    known = all(math.isfinite(each.copies * each.entry_bytes) for each in kept)
    totals = {source.name: source for source in header.sources}
    read = {name: [0, *accumulate(totals[name].step_rows)] for name in {k.source for k in kept}}
    if not known or any(len(rows) != header.steps + 1 for rows in read.values()):
        return math.inf
    slack_us = header.proof.greatest_disorder_us
    ends_us = [end + slack_us for end in header.step_ends_us]

    def needed(step: int) -> float:
        watermark_us = min(_newest_us(rows, header, step) for rows in read.values()) - 2 * delay_us
        return sum(
            each.copies
            * each.entry_bytes
            * (
                read[each.source][step + 1]
                - read[each.source][min(bisect_right(ends_us, watermark_us - each.since_us), step)]
            )
            for each in kept
        )

    return max(map(needed, range(header.steps)), default=0.0)


def _newest_us(rows: Sequence[int], header: PlanHeader, step: int) -> float:
    """When a row arrived, or later, that has moved the watermark before a step is read. ``rows``
    are those of a source in all steps before each step.
    """
    first = bisect_right(rows, rows[step] - _PROMPT_ROWS) - 1
    return header.step_starts_us[first] if first >= 0 else -math.inf
