"""Writes rows into Parquet data files of an Iceberg table,
with its partitioning and properties, in bounded memory.

This is the only place that uses PyIceberg's writer of data files, which is not part of its public
interface.
"""

from itertools import count

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata

from backfill.api.errors import BackfillError
from backfill.outputs.null_lists import keep_null_lists
from backfill.outputs.stored_files import remove_file

_FLUSH_BYTES = 128 * 1024 * 1024
"""Uncompressed bytes of rows that are kept in memory before they are written to files."""

_MOST_FILES = 1_000_000
"""More than one task writes."""
_ROWS_LOOKED_AT = 10_000


def layout(metadata: TableMetadata, schema_id: int, spec_id: int, directory: str) -> TableMetadata:
    """What a writer needs to know of a table to write below a directory.

    Small enough to be sent to every task.
    """
    without = (
        TableProperties.OBJECT_STORE_ENABLED,
        TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL,
    )
    properties = {key: value for key, value in metadata.properties.items() if key not in without}
    properties |= {
        TableProperties.WRITE_DATA_PATH: directory,
        TableProperties.WRITE_FILE_FORMAT: "parquet",
    }
    written_with = {
        "current_schema_id": schema_id,
        "default_spec_id": spec_id,
        "properties": properties,
    }
    history: dict[str, object] = {
        "snapshots": [],
        "snapshot_log": [],
        "metadata_log": [],
        "refs": {},
        "statistics": [],
    }
    return metadata.model_copy(update={**history, "current_snapshot_id": None, **written_with})


def number_of(file: DataFile) -> int:
    """The number in the name of a file that a writer has made."""
    name = file.file_path.rpartition("/")[2]
    return int(name.split("-")[1])


class DataFileWriter:
    """Collects rows that have the table's columns and types,
    and writes them to files with unique names.
    """

    def __init__(self, table: TableMetadata, io: FileIO, *, task: int = 0):
        """``table`` is a :func:`layout`. Numbers in the names of files put them in the order of
        their tasks, and of the rows of each task.
        """
        self._table = table
        self._io = io
        self._numbers = count(task * _MOST_FILES)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._files: list[DataFile] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds rows."""
        if rows.num_rows == 0:
            return
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= _FLUSH_BYTES:
            self._flush()

    def close(self) -> list[DataFile]:
        """Writes what is left and returns all files."""
        self._flush()
        return self._files

    def discard(self) -> None:
        """Removes the files that were written."""
        for file in self._files:
            remove_file(self._io, file.file_path)

    def _flush(self) -> None:
        if self._pending:
            keep_null_lists()
            rows = pa.Table.from_batches(self._pending)
            try:
                made = _dataframe_to_data_files(self._table, rows, self._io, counter=self._numbers)
                self._files.extend(made)
            except OverflowError as error:  # in the statistics of a file, or in its partition
                raise BackfillError(
                    f"column {', '.join(_beyond_calendar(rows)) or 'unknown'} of the result has a"
                    " date or timestamp before year 1 or after year 9999, which cannot be written:"
                    " leave such rows out in the application, or make the value null"
                ) from error
        self._pending, self._pending_bytes = [], 0


def _beyond_calendar(rows: pa.Table) -> list[str]:
    """The columns with a date or timestamp that Python's calendar does not have."""
    found = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            for start in range(0, len(column), _ROWS_LOOKED_AT):
                column.slice(start, _ROWS_LOOKED_AT).to_pylist()
        except OverflowError:
            found.append(name)
    return found
