"""How late rows arrived, measured on a sample of a table's rows."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan, Reference
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table
from pyiceberg.types import TimestamptzNanoType, TimestamptzType

from backfill.api.spec import Window

MOST_FILES = 10
MOST_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class ArrivalLags:
    """Differences between arrival and event time, in microseconds; below zero where rows arrived
    before their event time.
    """

    rows: int
    """Rows that were looked at."""
    files: int
    """Files that they are from."""
    of_files: int
    """Files with rows that arrived in the window."""
    least_us: int
    early_us: int
    """Of 999 in 1,000 rows, the least."""
    half_us: int
    most_us: int
    """Of 999 in 1,000 rows, the greatest."""
    greatest_us: int

    @classmethod
    def of(
        cls, event_us: np.ndarray, arrival_us: np.ndarray, files: int, of_files: int
    ) -> "ArrivalLags":
        """Those of rows, of which there is at least one."""
        lags = np.sort(arrival_us - event_us)
        half, most = (int(np.ceil(share * len(lags))) - 1 for share in (0.5, 0.999))
        places = (0, len(lags) - 1 - most, half, most, -1)
        return cls(len(lags), files, of_files, *(int(lags[place]) for place in places))


def measure_lags(table: Table, event: str, arrival: str, window: Window) -> ArrivalLags | None:
    """The lags of rows that arrived in the window, of up to ten files spread over it; None if there
    are none. Both columns are timestamps; nested ones have dots.

    Raises:
        Exception: what PyIceberg raises if files cannot be read.
    """
    zoned = isinstance(table.schema().find_type(arrival), TimestamptzType | TimestamptzNanoType)
    start, end = (
        each.isoformat() if zoned else each.replace(tzinfo=None).isoformat()
        for each in (window.start, window.end)
    )
    scan = table.scan(
        row_filter=And(
            GreaterThanOrEqual(term=Reference(arrival), value=start),
            LessThan(term=Reference(arrival), value=end),
        ),
        selected_fields=(event, arrival),
    )
    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    chosen = tasks[:: max(1, -(-len(tasks) // MOST_FILES))]
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for task in chosen:
        wanted = MOST_ROWS // len(chosen)
        reader = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
        for batch in reader.to_record_batches([task]):
            rows = batch.slice(0, wanted)
            found.append((_microseconds(rows, event), _microseconds(rows, arrival)))
            wanted -= rows.num_rows
            if wanted <= 0:
                break
    events, arrivals = (
        np.concatenate([each[side] for each in found] or [np.array([], "int64")]) for side in (0, 1)
    )
    known = (events != _NULL) & (arrivals != _NULL)
    if not known.any():
        return None
    return ArrivalLags.of(events[known], arrivals[known], len(chosen), len(tasks))


_NULL = np.iinfo("int64").min


def _microseconds(rows: pa.RecordBatch, column: str) -> np.ndarray:
    name, *path = column.split(".")
    values = rows.column(name)
    if path:
        values = pc.struct_field(values, path)
    numbers = values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(pa.int64())
    found: np.ndarray = numbers.fill_null(_NULL).to_numpy(zero_copy_only=False)
    return found
