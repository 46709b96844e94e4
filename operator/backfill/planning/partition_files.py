"""The files of one Kafka partition: where they lack offsets.

What a partition lacks at an edge of the range shows between its rows within and its nearest ones
outside. Then only the moments around a gap say whether its rows are of the range.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from backfill.planning.source_files import Int64s

_SURELY = 14.0
"""If rows arrive at random and this many are expected, there is one (but for one case in a
million).
"""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [start, end) of a partition that no file has."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class GapPlace:
    """Where offsets are missing."""

    gap: Gap
    share: float = 1.0
    """At an edge of the range: how much of the time between the rows around it is within."""
    usual: float = math.inf
    """The number of rows that are usual in that time. Between rows of the range, all are of it."""

    def is_within(self, left: Gap) -> bool:
        """Whether rows of the range are missing, if the table lacks this part of the gap."""
        expected = min((left.end - left.start) * self.share, self.usual)
        return self.usual == math.inf or expected > _SURELY


@dataclass(frozen=True)
class PartitionFiles:
    """The files of one partition by their first offset: columns of first and last offset, number of
    rows, and bounds of timestamps.
    """

    number: int
    files: Int64s
    """Those of the range."""
    before: Int64s
    """The last one before them that has no rows of the range, if it is near."""
    after: Int64s
    """The first one after them."""
    read: tuple[int, int]

    @classmethod
    def of(
        cls, number: int, files: Int64s, around: Int64s, read: tuple[int, int]
    ) -> "PartitionFiles":
        """Greater offsets from before the range, and smaller ones from after it, do not count:
        they are of a topic that was created again, or were late.
        """
        before, after = around[:, around[4] < read[0]], around[:, around[3] >= read[1]]
        if files.size:
            before = before[:, before[0] <= files[0].min()]
        before = before[:, before[1].argmax(keepdims=True)] if before.size else before
        reached = files if files.size else before
        after = after[:, after[1] > reached[1].max()] if reached.size else after[:, :0]
        after = after[:, after[0].argmin(keepdims=True)] if after.size else after
        order = np.argsort(files[0], kind="stable")
        return cls(number, files[:, order], before, after, read)

    @property
    def compared(self) -> int:
        """Number of files."""
        return sum(int(each.shape[1]) for each in (self.before, self.files, self.after))

    @property
    def doubled(self) -> int:
        """The least number of rows in excess of offsets."""
        first, last, rows, _, _ = self.files
        until = _until(last)
        before = np.concatenate([first[:1], until[:-1]])
        offsets = np.clip(until - np.maximum(first, before), 0, None).sum()
        within = np.clip(rows - (last - first + 1), 0, None).sum()
        return int(max(rows.sum() - offsets, within, 0))

    @property
    def sparse(self) -> bool:
        """Whether a file has fewer rows than offsets."""
        first, last, rows, _, _ = self.files
        return bool((rows < last - first + 1).any())

    @property
    def several_logs(self) -> bool:
        """Whether most rows after a gap arrived before the last ones ahead of it."""
        first, last, _, earliest, latest = self.files
        after, ahead = _around_gaps(first, last)
        middle = earliest[after] + (latest[after] - earliest[after]) // 2
        return bool((middle < latest[ahead]).any())

    def gaps(self) -> Iterator[GapPlace]:
        """Where offsets are missing between files of the range, or next to them."""
        first, last, _, earliest, latest = np.concatenate(
            [self.before, self.files, self.after], axis=1
        )
        inner = range(self.before.shape[1] + 1, self.before.shape[1] + self.files.shape[1])
        for after, ahead in zip(
            *(each.tolist() for each in _around_gaps(first, last)), strict=True
        ):
            gap = Gap(self.number, int(last[ahead]) + 1, int(first[after]))
            if after in inner:
                yield GapPlace(gap)
            else:
                yield self._at_edge(gap, int(latest[ahead]), int(earliest[after]))

    def _at_edge(self, gap: Gap, from_us: int, until_us: int) -> GapPlace:
        start, end = self.read
        within = max(min(until_us, end) - max(from_us, start), 0)
        outer = np.concatenate([self.before, self.after], axis=1)
        rows = int(self.files[2].sum() + outer[2].sum())
        span = end - start + int((outer[4] - outer[3] + 1).sum())
        return GapPlace(gap, within / max(until_us - from_us, 1), rows / span * within)


def _until(last: Int64s) -> Int64s:
    """Offset after the greatest of each file and those before it."""
    return np.maximum.accumulate(last) + 1


def _around_gaps(first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
    """The files in front of which offsets are missing, and for each the one that ends there."""
    until = _until(last)
    after = np.flatnonzero(first[1:] > until[:-1]) + 1
    return after, np.searchsorted(until, until[after - 1])
