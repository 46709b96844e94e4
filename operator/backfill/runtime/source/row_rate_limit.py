"""Slows down reading, for applications that call services with a limited rate."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def paced(
    batches: Iterable["pa.RecordBatch"],
    rows_per_second: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator["pa.RecordBatch"]:
    """The same rows, in batches of at most a second's, each at the end of the time that it may
    take. If the reader of the rows takes longer, the lost time is not made up.
    """
    most = max(int(rows_per_second), 1)
    due = clock()
    for batch in batches:
        for first in range(0, batch.num_rows, most):
            part = batch.slice(first, most)
            due = max(due, clock()) + part.num_rows / rows_per_second
            sleep(max(due - clock(), 0.0))
            yield part
