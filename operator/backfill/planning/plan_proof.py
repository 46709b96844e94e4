"""Verifies a plan's promises by its finished splits alone,
without knowledge of how they were made.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from backfill.planning.plan import Proof


def prove(
    splits: pa.Table, starts_us: Sequence[int], ends_us: Sequence[int], max_misalignment_us: int
) -> Proof:
    """The greatest disorder and misalignment that reading these splits step by step can cause.

    A step may be read once it ends at most ``max_misalignment_us`` after the global watermark,
    which is the start of the first uncommitted step. That step may always be read.
    """
    step = splits["step"].to_numpy()
    oldest = np.full(len(starts_us), np.iinfo(np.int64).max)
    newest = np.full(len(starts_us), np.iinfo(np.int64).min)
    np.minimum.at(oldest, step, splits["lower_us"].to_numpy())
    np.maximum.at(newest, step, splits["upper_us"].to_numpy())
    newest_so_far = np.maximum.accumulate(newest)
    return Proof(
        greatest_disorder_us=_greatest_disorder(oldest, newest_so_far),
        greatest_misalignment_us=_greatest_misalignment(
            newest_so_far, starts_us, ends_us, max_misalignment_us
        ),
    )


def _greatest_disorder(oldest: np.ndarray, newest_so_far: np.ndarray) -> int:
    """Most microseconds by which rows can be newer than a row of a later step."""
    oldest_to_come = np.minimum.accumulate(oldest[::-1])[::-1]
    ahead = newest_so_far[:-1] - oldest_to_come[1:]
    return max(int(ahead.max(initial=0)), 0)


def _greatest_misalignment(
    newest_so_far: np.ndarray, starts: Sequence[int], ends: Sequence[int], limit_us: int
) -> int:
    watermark = np.asarray(starts, np.int64)
    released = np.searchsorted(np.asarray(ends, np.int64), watermark + limit_us, "right") - 1
    furthest = np.maximum(released, np.arange(len(watermark)))
    return max(int((newest_so_far[furthest] - watermark).max(initial=0)), 0)
