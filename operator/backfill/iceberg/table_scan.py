"""The files of a snapshot, as PyIceberg plans a scan."""

from collections.abc import Iterable

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import FileScanTask, Table

_OPTIONS = {"include_empty_files": "true"}
"""Some writers do not count rows, and leave 0 in the manifest: the rows are there."""


def scan_files(
    table: Table, snapshot_id: int, row_filter: BooleanExpression | None = None
) -> Iterable[FileScanTask]:
    """Files of a snapshot that may have rows for which a filter is true, with their deletes.

    Raises:
        Exception: what PyIceberg raises, such as ValueError for equality deletes.
    """
    wanted = AlwaysTrue() if row_filter is None else row_filter
    return table.scan(wanted, snapshot_id=snapshot_id, options=_OPTIONS).plan_files()
