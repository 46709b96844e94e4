"""Sorts rows across batches. They are not joined first, because a string column of more than 2 GiB
does not fit into one array.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill.planning.rows.row_selection import column_at


def in_order(
    batches: Sequence[pa.RecordBatch], paths: Sequence[list[str]], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """All rows, sorted by the columns at ``paths``, in batches of at most ``batch_rows``. There is
    at least one batch.
    """
    keys = {
        str(number): pa.chunked_array([column_at(batch, path) for batch in batches])
        for number, path in enumerate(paths)
    }
    order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])
    for start in range(0, len(order), batch_rows):
        yield _rows_at(batches, order.slice(start, batch_rows))


def _rows_at(batches: Sequence[pa.RecordBatch], places: pa.Array) -> pa.RecordBatch:
    """Rows by their positions in all batches together. Only the selected rows are joined."""
    if len(batches) == 1:
        return batches[0].take(places)
    place = places.to_numpy().astype(np.int64)
    first = np.cumsum([0, *(batch.num_rows for batch in batches)])
    number = np.searchsorted(first, place, "right") - 1
    taken = [batch.take(pa.array(place[number == n] - first[n])) for n, batch in enumerate(batches)]
    position = np.empty(len(place), np.int64)
    position[np.argsort(number, kind="stable")] = np.arange(len(place))
    return pa.concat_batches(taken).take(pa.array(position))
