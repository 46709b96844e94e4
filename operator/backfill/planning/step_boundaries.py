"""Determines where steps start and end: as long as the limits allow.

A greedy walk over the pieces by their least timestamp. Each step starts at the first remaining row,
and ends at the latest moment that keeps it within its span and its bytes. In the last eighth of
that stretch, it prefers the end that the fewest bytes straddle, because a piece that straddles the
end is read by two steps.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill.iceberg.timestamp_units import LEAST_US
from backfill.planning.pieces import Pieces
from backfill.planning.source_files import Int64s

MAX_STEPS = 100_000
"""More steps neither fit into a header for a cluster nor are worth their overhead."""
ANY_REACH_US = 2**61
"""A reach that no piece exceeds."""

_SNAP = 8
"""A step may end this fraction of its length early, so that fewer pieces are read twice."""

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepLimits:
    """Limits of a step."""

    span_us: int
    """Most microseconds between its start and its end."""
    target_bytes: int
    """Most bytes where data is dense."""
    reach_us: int
    """Microseconds that a step may read past its end (inclusive); -1 for none."""
    end_us: int
    """End of what is read."""


class TooManyStepsError(Exception):
    """The range needs more than :data:`MAX_STEPS` steps."""


def make_steps(pieces: Pieces, limits: StepLimits) -> tuple[Int64s, Int64s]:
    """Starts and ends of the steps that cover all pieces.

    Raises:
        TooManyStepsError: there would be more than :data:`MAX_STEPS`.
    """
    order = np.argsort(pieces.lower_us, kind="stable")
    lower, upper = pieces.lower_us[order], pieces.upper_us[order]
    density = _Density(lower, upper, pieces.bytes[order], limits.reach_us)
    cuts = _Cuts(lower, upper, pieces.bytes[order], limits.reach_us)
    starts: list[int] = []
    ends: list[int] = []
    taken, open_until, start = 0, LEAST_US, int(lower[0]) if lower.size else 0
    while taken < lower.size or open_until >= start:
        latest = min(
            start + limits.span_us,
            limits.end_us,
            max(density.moment_after(start, limits.target_bytes), start + 1),
        )
        end = cuts.cheapest(latest - (latest - start) // _SNAP, latest)
        starts.append(start)
        ends.append(end)
        if len(starts) > MAX_STEPS:
            raise TooManyStepsError
        first, taken = taken, int(np.searchsorted(lower, end))
        astride = upper[first:taken][upper[first:taken] > end + limits.reach_us]
        open_until = max(open_until, int(astride.max(initial=LEAST_US)))
        if taken == lower.size and open_until < end:
            break
        start = end if open_until >= end else int(lower[taken])
    return np.array(starts, np.int64), np.array(ends, np.int64)


class _Density:
    """Bytes over time. Those of a piece that is not longer than the reach are at its lower bound;
    others are distributed evenly.
    """

    def __init__(self, lower: Int64s, upper: Int64s, size: Int64s, reach_us: int):
        end = np.where(upper - lower <= max(reach_us, 0), lower + 1, upper + 1)
        slope = size / (end - lower)
        moments = np.concatenate([lower, end])
        order = np.argsort(moments, kind="stable")
        self._moments = moments[order]
        self._slopes: _Floats = np.cumsum(np.concatenate([slope, -slope])[order])
        grown = np.cumsum(self._slopes[:-1] * np.diff(self._moments))
        self._bytes: _Floats = np.maximum.accumulate(np.concatenate([[0.0], grown]))

    def moment_after(self, start_us: int, size: int) -> int:
        """The latest moment such that there are at most
        ``size`` bytes from ``start_us`` until then.
        """
        at = int(np.searchsorted(self._moments, start_us, "right")) - 1
        before = self._bytes[at] + self._slopes[at] * (start_us - self._moments[at])
        at = int(np.searchsorted(self._bytes, before + size, "right")) - 1
        slope = self._slopes[at]
        if at == len(self._moments) - 1 or slope <= 0:
            return ANY_REACH_US
        return int(self._moments[at]) + int((before + size - self._bytes[at]) / slope)


class _Cuts:
    """Bytes that straddle a moment. A step that ends there reads them twice."""

    def __init__(self, lower: Int64s, upper: Int64s, size: Int64s, reach_us: int):
        can_be_cut = upper - reach_us - 1 > lower
        self._from, from_size = lower[can_be_cut], size[can_be_cut]
        until, until_size = upper[can_be_cut] - reach_us, size[can_be_cut]
        order = np.argsort(until, kind="stable")
        self._until = until[order]
        self._opened: npt.NDArray[Any] = np.concatenate([[0], np.cumsum(from_size)])
        self._closed: npt.NDArray[Any] = np.concatenate([[0], np.cumsum(until_size[order])])

    def cheapest(self, first_us: int, last_us: int) -> int:
        """The latest moment in [first, last] that the fewest bytes straddle."""
        between = self._from[
            np.searchsorted(self._from, first_us) : np.searchsorted(self._from, last_us)
        ]
        # the number rises right after a piece begins, so its minima are there
        candidates = np.append(between, last_us)
        opened = self._opened[np.searchsorted(self._from, candidates, "left")]
        closed = self._closed[np.searchsorted(self._until, candidates, "right")]
        astride = opened - closed
        return int(candidates[np.flatnonzero(astride == astride.min())[-1]])
