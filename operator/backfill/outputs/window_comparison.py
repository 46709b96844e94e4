"""Compares the window's rows in two snapshots of a table, by reading the files that only one of
them has, with their deletes applied.
"""

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.table import FileScanTask, Table

from backfill.api.errors import first_line
from backfill.iceberg.table_scan import scan_files
from backfill.outputs.replaced_files import any_inside, read_rows
from backfill.outputs.row_digests import RowsDigest, digest
from backfill.outputs.window_rows import Share, WindowRows

_READERS = 8
LASTING = (
    FileNotFoundError,
    ValueError,
    TypeError,
    NotImplementedError,
    ResolveError,
    pa.ArrowException,
)
"""Errors of reading that another attempt would raise again.
An object store that is unavailable raises others.
"""

_FileKey = tuple[str, frozenset[str]]
"""Location of a data file, and the delete files that apply to it."""
_Files = dict[_FileKey, list[FileScanTask]]


class NotComparable(Exception):  # noqa: N818 - says what is the case
    """Rows cannot be compared, however often it is tried. The message says why."""


class WindowComparison:
    """Keeps what it has read, because a publication compares again for each state of the table that
    it tries to commit to.
    """

    def __init__(self, rows: WindowRows):
        self._rows = rows
        self._before: tuple[int | None, _Files] = (None, {})
        """A snapshot, and its files that may have rows of the window."""
        self._digests: dict[tuple[int, _FileKey], RowsDigest] = {}
        """Digests by file, and by the schema that the file was read with."""

    def same(self, table: Table, before: int | None, after: int | None) -> bool:
        """Whether two snapshots have the same rows in the window, each equally often. None stands
        for a table without rows.

        Compares the present columns of the table. Files that only one of the snapshots has are read
        one after the other, in bounded memory.

        Raises:
            NotComparable: a file is missing or unreadable, or has equality deletes.
        """
        try:
            if self._before[0] != before:
                self._before = (before, self._files(table, before))
            old, new = self._before[1], self._files(table, after)
            common = _counts(old) & _counts(new)
            return self._digest(table, old, common) == self._digest(table, new, common)
        except LASTING as error:
            raise NotComparable(why_unreadable(error)) from error

    def _files(self, table: Table, snapshot_id: int | None) -> _Files:
        found: _Files = {}
        if snapshot_id is None:
            return found
        for task in scan_files(table, snapshot_id, self._rows.expression()):
            key = (task.file.file_path, frozenset(delete.file_path for delete in task.delete_files))
            found.setdefault(key, []).append(task)
        return found

    def _digest(self, table: Table, files: _Files, common: Counter[_FileKey]) -> RowsDigest:
        """Digest of the rows in all files except the common ones.

        A file that a snapshot has twice counts twice.
        """
        times = {
            key: len(tasks) - common[key]
            for key, tasks in files.items()
            if len(tasks) > common[key]
        }
        self._read(table, [(key, files[key][0]) for key in times])
        schema_id = table.schema().schema_id
        return sum(
            (self._digests[schema_id, key] for key, count in times.items() for _ in range(count)),
            RowsDigest(),
        )

    def _read(self, table: Table, files: Iterable[tuple[_FileKey, FileScanTask]]) -> None:
        schema_id = table.schema().schema_id
        unread = [(key, task) for key, task in files if (schema_id, key) not in self._digests]
        with ThreadPoolExecutor(_READERS) as readers:  # one small column of each file
            inside = list(readers.map(lambda file: self._may_be_inside(table, file[1]), unread))
        for (key, task), any_row in zip(unread, inside, strict=True):
            self._digests[schema_id, key] = (
                self._read_file(table, task) if any_row else RowsDigest()
            )

    def _may_be_inside(self, table: Table, task: FileScanTask) -> bool:
        share = self._rows.share(task.file)
        return share is not Share.NONE and (
            share is not Share.UNKNOWN or any_inside(table, task, self._rows)
        )

    def _read_file(self, table: Table, task: FileScanTask) -> RowsDigest:
        batches = (batch.filter(self._rows.mask(batch)) for batch in read_rows(table, task))
        return sum(map(digest, batches), RowsDigest())


def _counts(files: _Files) -> Counter[_FileKey]:
    return Counter({key: len(tasks) for key, tasks in files.items()})


def why_unreadable(error: Exception) -> str:
    """One of these errors, in words."""
    if "equality deletes" in str(error):
        return "it has equality deletes there"
    return first_line(error)
