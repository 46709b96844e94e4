"""What Replace would remove without replacement: the rows of production and those of the result,
counted by stretches of the window.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from backfill.api.output import Output
from backfill.api.quantities import from_us, to_us
from backfill.api.spec import Window
from backfill.api.status import MOST_STRETCHES, LostStretch, WindowLosses
from backfill.iceberg.open_tables import Catalogs
from backfill.iceberg.table_scan import scan_files
from backfill.outputs.replaced_files import read_rows
from backfill.outputs.result_names import Result
from backfill.outputs.staging import branch_head, lost
from backfill.outputs.window_comparison import LASTING, why_unreadable
from backfill.outputs.window_rows import DAY_US, Share, WindowRows, window_rows

_SECOND_US = 1_000_000
_LENGTHS_US = tuple(
    seconds * _SECOND_US
    for seconds in (1, 5, 15, 60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400)
)
"""Lengths of stretches. Each divides the next one, so that stretches can be joined."""
_FINEST_US = 900 * _SECOND_US
"""Half an hour without rows holds a stretch of this length, wherever it begins."""
_FINEST_PART = 100
"""Stretches of windows shorter than a day are at most this many."""
_MOST_COUNTED = 3_000
_FEWEST_ROWS = 10
"""Rows that stretches have on average, where production has any: whether one is empty is no matter
of a single row.
"""
_ROWS_OF_A_SHARE = 1_000
"""Rows in which a percentage of lost rows is measured: of a few, a single one is too many."""
_READERS = 8

_Counts = npt.NDArray[np.int64]


def count_losses(output: Output, result: Result, window: Window) -> WindowLosses:
    """Counts the window's rows in the output's table as it is now, and in the staged result.

    Of files that are within one stretch, the number of rows in the manifest is used; of others, the
    timestamp column is read. Memory does not depend on the number of rows.

    Raises:
        BadInput: the table cannot be opened, or has no such column any more.
        ResultLost: the result no longer exists.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    rows, head = window_rows(table.schema(), output, window), branch_head(table.metadata, result)
    if head is None:
        raise lost(output.table, result)
    if rows is None:
        return WindowLosses(problem="the output has no timestampColumn")
    try:
        edges = _edges(window, days=rows.ticks is None)
        counts = (
            _count(table, tasks, rows, edges)
            for tasks in (_production(table, rows), _staged(table, result, head.snapshot_id))
        )
        return _losses(edges, *counts)
    except LASTING as error:
        return WindowLosses(problem=why_unreadable(error))


def _production(table: Table, rows: WindowRows) -> Iterable[FileScanTask]:
    current = table.metadata.current_snapshot_id
    if current is None:
        return ()
    return scan_files(table, current, rows.expression())


def _staged(table: Table, result: Result, snapshot_id: int) -> Iterable[FileScanTask]:
    tasks = scan_files(table, snapshot_id)
    return (task for task in tasks if result.data_directory_of(task.file.file_path) is not None)


def _edges(window: Window, *, days: bool) -> _Counts:
    """The bounds of the stretches that are counted: whole multiples of a length, and the window's
    own bounds.
    """
    start, end = to_us(window.start), to_us(window.end)
    finest = DAY_US if days else min(_FINEST_US, (end - start) // _FINEST_PART)
    length = next(
        (each for each in _LENGTHS_US if each >= finest and (end - start) // each < _MOST_COUNTED),
        _LENGTHS_US[-1],
    )
    inner = np.arange(start // length * length + length, end, length, dtype=np.int64)
    return np.concatenate([[start], inner, [end]])


def _count(
    table: Table, tasks: Iterable[FileScanTask], rows: WindowRows, edges: _Counts
) -> _Counts:
    counts, lock = np.zeros(len(edges) - 1, np.int64), Lock()
    bounds = np.array([rows.first_at(int(edge)) for edge in edges], np.int64)

    def add(task: FileScanTask) -> None:
        if rows.share(task.file) is Share.NONE:
            return
        place = None if task.delete_files else _only_stretch(task.file, rows, bounds)
        if place is not None:
            with lock:
                counts[place] += task.file.record_count
            return
        for batch in read_rows(table, task, rows.column):
            values = pc.drop_null(rows.times(batch)).to_numpy()
            places = np.searchsorted(bounds, values, "right") - 1
            inside = places[(places >= 0) & (places < len(counts))]
            with lock:
                counts[:] += np.bincount(inside, minlength=len(counts))

    with ThreadPoolExecutor(_READERS) as readers:
        for _ in readers.map(add, tasks):
            pass
    return counts


def _only_stretch(file: DataFile, rows: WindowRows, bounds: _Counts) -> int | None:
    """The stretch with all rows of a file; None if there may be several."""
    found = rows.bounds(file)
    if found is None or rows.share(file) is not Share.ALL:
        return None
    first, last = np.searchsorted(bounds, found, "right") - 1
    return int(first) if first == last else None


def _losses(edges: _Counts, production: _Counts, staged: _Counts) -> WindowLosses:
    totals = int(production.sum()), int(staged.sum())
    edges, production, staged = _joined(edges, production, staged)
    nothing = np.where(staged == 0, production, 0)
    found = [
        *((first, end, int(nothing[first:end].sum()), 0) for first, end in _runs(staged, nothing)),
        *_shares(production - nothing, np.minimum(staged, production + production // 2)),
    ]
    found.sort(key=lambda each: (each[3] - each[2]) / each[2])
    stretches = (
        LostStretch(
            start=from_us(int(edges[first])),
            end=from_us(int(edges[end])),
            production_rows=removed,
            result_rows=added,
        )
        for first, end, removed, added in sorted(found[:MOST_STRETCHES])
    )
    return WindowLosses(
        production_rows=totals[0],
        result_rows=totals[1],
        stretches=tuple(stretches),
        further=max(len(found) - MOST_STRETCHES, 0),
    )


def _joined(
    edges: _Counts, production: _Counts, staged: _Counts
) -> tuple[_Counts, _Counts, _Counts]:
    """The same in longer stretches, if those with rows of production have too few on average."""
    for length in _LENGTHS_US:
        whole = np.flatnonzero(edges[:-1] % length == 0)
        starts = np.unique(np.concatenate([[0], whole]))
        joined = np.add.reduceat(production, starts)
        if joined.sum() >= _FEWEST_ROWS * np.count_nonzero(joined):
            break
    return np.append(edges[starts], edges[-1]), joined, np.add.reduceat(staged, starts)


def _runs(staged: _Counts, nothing: _Counts) -> Iterable[tuple[int, int]]:
    """Stretches in which the result has no rows and production has, with those between them in
    which neither has any.
    """
    lost = np.flatnonzero(nothing)
    if not lost.size:
        return
    breaks = [
        place for place, (one, other) in enumerate(pairwise(lost), 1) if staged[one:other].any()
    ]
    for run in np.split(lost, breaks):
        yield int(run[0]), int(run[-1]) + 1


def _shares(production: _Counts, staged: _Counts) -> Iterable[tuple[int, int, int, int]]:
    """Neighbouring stretches with enough rows of production to measure a share, that lose some.

    Between neighbours rows may have moved, so those of ``staged`` make up for others nearby. They
    are not all that a result has where production has gaps.
    """
    ends, rows = [], 0
    for place, more in enumerate(production, 1):
        rows += int(more)
        if rows >= _ROWS_OF_A_SHARE:
            ends.append(place)
            rows = 0
    ends[-1:] = [len(production)]
    for first, end in pairwise([0, *ends]):
        removed, added = int(production[first:end].sum()), int(staged[first:end].sum())
        if added < removed:
            yield first, end, removed, added
