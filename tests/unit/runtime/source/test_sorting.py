"""Rows of several batches, sorted by some of their columns."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from backfill.runtime.source.split_reading import in_order

rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1_000), st.text(max_size=3)),
    min_size=1,
    max_size=12,
)


@given(st.lists(rows, min_size=1, max_size=5), st.integers(1, 7))
def test_no_row_is_lost_when_rows_do_not_fit_into_one_batch(
    parts: list[list[tuple[int, int, str]]], batch_rows: int
) -> None:
    batches = [
        pa.RecordBatch.from_pylist(
            [{"kafka": {"partition": p, "offset": o}, "value": value} for p, o, value in part]
        )
        for part in parts
    ]
    found = list(in_order(batches, [["kafka", "partition"], ["kafka", "offset"]], batch_rows))
    assert all(0 < batch.num_rows <= batch_rows for batch in found)
    read = [
        (row["kafka"]["partition"], row["kafka"]["offset"], row["value"])
        for row in pa.Table.from_batches(found).to_pylist()
    ]
    everything = [row for part in parts for row in part]
    assert read == sorted(everything, key=lambda row: row[:2])
