"""What Replace and Upsert remove: files of which all rows are replaced are dropped, and files of
which some are replaced are rewritten without them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from backfill.api.errors import BackfillError, UnknownReferences
from backfill.iceberg.format_v3 import NumberedFile, with_numbered_files
from backfill.iceberg.table_scan import scan_files
from backfill.outputs.column_conversion import fit
from backfill.outputs.data_files import DataFileWriter, layout
from backfill.outputs.null_lists import keep_null_lists
from backfill.outputs.referenced_files import Unreferenced
from backfill.outputs.result_names import Result
from backfill.outputs.row_numbers import (
    read_numbered_rows,
    with_row_numbers,
    written_with_row_numbers,
)
from backfill.outputs.stored_files import remove_file
from backfill.outputs.window_rows import Share


class ReplacedRows(Protocol):
    """The rows of a table that are replaced."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that :meth:`mask` looks at, in expressions."""

    def mask(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """For each row, whether it is replaced."""

    def expression(self) -> BooleanExpression:
        """A condition that all of them meet, for PyIceberg's scans."""

    def share(self, file: DataFile) -> Share:
        """How many rows of a data file are among them, by the statistics in its manifest."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Files to remove from a table, and what remains of them."""

    removed: tuple[DataFile, ...]
    kept: tuple[DataFile, ...]
    """New files with the rows of removed ones that are not replaced."""


class Replacement:
    """Determines what to remove, for each state of the table that a commit is tried on.

    Rewritten files are reused, so that a table that others append to is not read again each time.
    """

    def __init__(self, result: Result, rows: ReplacedRows, spec_id: int, since: int):
        """``since`` is the table's last sequence number; 0 if it has none."""
        self._result = result
        self._rows = rows
        self._spec_id = spec_id
        self._since = since
        self._kept: dict[tuple[frozenset[str], int | None], tuple[DataFile, ...] | None] = {}
        """By file and its delete files, and the number of its first row, what remains of it;
        None if none of its rows is replaced.
        """

    def plan(self, table: Table) -> Removal:
        """What to remove from the main branch of ``table``.

        Raises:
            BackfillError: files with equality deletes may have rows that are replaced.
        """
        removed: list[DataFile] = []
        kept: list[DataFile] = []
        for task in self._candidates(table):
            share = self._rows.share(task.file)
            stays = (
                ()
                if share is Share.ALL
                else None
                if share is Share.NONE
                else self._rest(table, task)
            )
            if stays is not None:
                removed.append(task.file)
                kept.extend(stays)
        return Removal(tuple(removed), tuple(kept))

    def remove_unused(self, table: Table) -> None:
        """Removes rewritten files that no snapshot refers to. If that is unknown, all stay."""
        written = (file.file_path for files in self._kept.values() for file in files or ())
        unused = Unreferenced(written, self._since)
        try:
            unused.read_until_unchanged(table)
        except UnknownReferences:
            return
        for location in unused.locations:
            remove_file(table.io, location)

    def _candidates(self, table: Table) -> Iterable[FileScanTask]:
        current = table.metadata.current_snapshot_id
        if current is None:
            return ()
        try:
            return scan_files(with_numbered_files(table), current, self._rows.expression())
        except ValueError as error:
            why = why_not_rewritten(error)
            name = ".".join(table.name())
            raise BackfillError(
                f"table {name} {why}; compact the table and publish again"
            ) from error

    def _rest(self, table: Table, task: FileScanTask) -> tuple[DataFile, ...] | None:
        paths = frozenset({task.file.file_path, *(each.file_path for each in task.delete_files)})
        # in a table that was upgraded, somebody's commit gives it one
        key = paths, task.file.first_row_id if isinstance(task.file, NumberedFile) else None
        if key not in self._kept:
            self._kept[key] = (
                self._write_rest(table, task) if any_inside(table, task, self._rows) else None
            )
        return self._kept[key]

    def _write_rest(self, table: Table, task: FileScanTask) -> tuple[DataFile, ...]:
        schema, directory = table.schema(), self._result.kept_directory(table.metadata)
        written = layout(table.metadata, schema.schema_id, self._spec_id, directory)
        batches = read_rows(table, task)
        if isinstance(task.file, NumberedFile):
            schema, written = with_row_numbers(schema), written_with_row_numbers(written)
            batches = read_numbered_rows(table, task, task.file)
        writer = DataFileWriter(written, table.io)
        try:
            for rows in batches:
                writer.add(fit(rows.filter(pc.invert(self._rows.mask(rows))), schema))
            return tuple(writer.close())
        except BaseException:
            writer.discard()
            raise


def why_not_rewritten(error: ValueError) -> str:
    """Why files that a scan was to find cannot be rewritten. Raises an error of another kind."""
    if "equality deletes" not in str(error):
        raise error
    return "has equality deletes in the window, which cannot be applied when files are rewritten"


def irremovable(table: Table, files: Iterable[DataFile]) -> str | None:
    """Why some of these files cannot be removed; None if all can. If a partition column no longer
    exists, the type of its values is unknown, and PyIceberg can neither find such a file nor write
    it into a manifest.
    """
    columns, specs = table.schema().field_ids, table.specs()
    for spec_id in sorted({file.spec_id for file in files}):
        for field in specs[spec_id].fields:
            if field.source_id not in columns:
                what = (
                    f"files in the window are partitioned by {field.name}, whose column was dropped"
                )
                return f"{what}; PyIceberg cannot replace such files"
    return None


def read_rows(
    table: Table,
    task: FileScanTask,
    *columns: str,
    wanted: BooleanExpression = AlwaysTrue(),  # noqa: B008
) -> Iterator[pa.RecordBatch]:
    """The live rows of a file in batches, with all present columns of the table or some of them;
    all rows, or those that are wanted.
    """
    keep_null_lists()
    schema = table.schema().select(*columns) if columns else table.schema()
    scan = ArrowScan(table.metadata, table.io, schema, wanted)
    return scan._record_batches_from_scan_tasks_and_deletes(
        [task], _read_all_delete_files(table.io, [task])
    )


def any_inside(table: Table, task: FileScanTask, rows: ReplacedRows) -> bool:
    """Whether a live row of a file is among some rows, by reading the columns that decide it."""
    return any(pc.any(rows.mask(batch)).as_py() for batch in read_rows(table, task, *rows.columns))
