"""Which data files Spark's own Parquet reader reads exactly as this package's reader does.

A file proves it by its footer. Spark finds columns by their field ids, at whatever depth, and
widens them as Iceberg does; but it skips row groups by the names of columns, so a file in which
another column has the name of one that is read loses rows. It has nulls in columns that a file
lacks, where Iceberg may have a partition's value or a default.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as is_a
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from backfill.iceberg.timestamps import ticks_of
from backfill.iceberg.values import partition_values
from backfill.iceberg.written import (
    ELEMENT,
    KEY,
    VALUE,
    Columns,
    Written,
    columns_of,
    has_field_ids,
    path_to,
)
from backfill.planning.footers import RowGroup, row_groups_of
from backfill.planning.plan import Split
from backfill.runtime.source.table import OpenTable

_READERS = 16
_PLAIN_PATH = re.compile(r"(file://)?(/[\w.=+@-]+)*/[a-zA-Z0-9][\w.=+@-]*", re.ASCII)
"""Paths of local files that mean the same to every library. Spark leaves out files whose names
begin with a dot or an underscore, without a word.
"""
_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}
_ENCODINGS = {
    "BIT_PACKED",
    "BYTE_STREAM_SPLIT",
    "DELTA_BINARY_PACKED",
    "DELTA_BYTE_ARRAY",
    "DELTA_LENGTH_BYTE_ARRAY",
    "PLAIN",
    "PLAIN_DICTIONARY",
    "RLE",
    "RLE_DICTIONARY",
}
_SPARK_VERSION = b"org.apache.spark.version"
_OLD_CALENDAR = b"org.apache.spark.legacyDateTime"


@dataclass(frozen=True)
class NativeFile:
    """A file as its footer describes it."""

    path: str
    bytes: int
    groups: tuple[RowGroup, ...]
    """Its row groups, with the arrival of their rows as far as statistics tell it."""
    unfit: frozenset[str]
    """Columns of the table that Spark might read otherwise."""


class NativeFiles:
    """The files of one source. Each footer is read once, when a run first needs the file: a plan
    does not say how its files are written.
    """

    def __init__(self, table: OpenTable):
        self._table = table
        self._found: dict[str, NativeFile | None] = {}

    def of(self, splits: Iterable[Split]) -> dict[str, NativeFile]:
        """Those of the splits' files that Spark can read, by path."""
        files = {split.path: split for split in splits}
        new = [split for path, split in files.items() if path not in self._found]
        with ThreadPoolExecutor(_READERS) as pool:
            for split, found in zip(new, pool.map(self._read, new), strict=True):
                self._found[split.path] = found
        known = ((path, self._found[path]) for path in files)
        return {path: file for path, file in known if file is not None}

    def _read(self, split: Split) -> NativeFile | None:
        if split.deletes or split.offsets or not _PLAIN_PATH.fullmatch(split.path):
            return None
        try:
            with self._table.io.new_input(split.path).open() as stream:
                metadata = pq.read_metadata(stream)
        except (OSError, pa.ArrowException):
            return None  # the other reader says what is wrong with it
        return _described(self._table, split, metadata)


def _described(table: OpenTable, split: Split, metadata: pq.FileMetaData) -> NativeFile | None:
    schema = metadata.schema.to_arrow_schema()
    planned = split.file_row_groups
    if planned not in (None, metadata.num_row_groups) or not _is_plain(metadata):
        return None
    if not has_field_ids(schema):
        return None
    columns = columns_of(schema, None)
    given = partition_values(table.schema, split.partition)
    file = _File(metadata, {key for key, value in given.items() if value is not None})
    unfit = {
        field.name
        for field in table.schema.fields
        if not all(file.fits(field, columns, schema.names, ""))
    }
    source = table.source
    arrival = path_to(columns, source.timestamp_field_id)
    if arrival is None:
        return None
    ticks = ticks_of(source.timestamp_type, source.timestamp_unit)
    groups = tuple(row_groups_of(metadata, arrival[-1].leaf, ticks))
    return NativeFile(split.path, split.file_bytes, groups, frozenset(unfit))


def _is_plain(metadata: pq.FileMetaData) -> bool:
    """Whether Spark has all that it takes to decode a file, and takes its days as they are."""
    told = metadata.metadata or {}
    if _OLD_CALENDAR in told or told.get(_SPARK_VERSION, b"9").startswith((b"1.", b"2.")):
        return False
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return all(
        column.compression in _CODECS and _ENCODINGS.issuperset(column.encodings)
        for group in groups
        for column in map(group.column, range(group.num_columns))
    )


@dataclass(frozen=True)
class _File:
    """Compares a file's columns with the table's, each answer for one of them."""

    metadata: pq.FileMetaData
    given: set[int]
    """Fields that have a value of the file's partition."""

    def fits(
        self, field: NestedField, found: Columns, names: Sequence[str], parent: str
    ) -> Iterator[bool]:
        """Whether Spark reads a field as this package does; ``names`` are all that are beside it in
        the file.
        """
        written = found.get(field.field_id)
        namesakes = {each for each in names if each.lower() == field.name.lower()}
        if written is None:
            has_value = field.field_id in self.given or field.initial_default is not None
            yield not (namesakes or has_value or field.required)
            return
        yield namesakes <= {written.name}
        yield from self._type_fits(field.field_type, written, f"{parent}{written.name}")

    def _type_fits(self, wanted: IcebergType, written: Written, path: str) -> Iterator[bool]:
        kind, parts = written.kind, written.parts
        match wanted:
            case StructType() if is_a.is_struct(kind):
                names = [part.name for part in kind]
                for field in wanted.fields:
                    # a filter on it would be compared with statistics, which know no NaN
                    yield not isinstance(field.field_type, FloatType | DoubleType)
                    yield from self.fits(field, parts, names, f"{path}.")
            case ListType() if is_a.is_list(kind):
                yield from self._type_fits(
                    wanted.element_type, parts[ELEMENT], f"{path}.list.element"
                )
            case MapType() if is_a.is_map(kind):
                yield from self._type_fits(wanted.key_type, parts[KEY], f"{path}.key_value.key")
                yield from self._type_fits(
                    wanted.value_type, parts[VALUE], f"{path}.key_value.value"
                )
            case _:
                fits = _FITS.get(type(wanted))
                yield fits is not None and bool(fits(kind, wanted))
                # lists and maps that are laid out in older ways are not trusted
                yield self.metadata.schema.column(written.leaf).path == path


_FITS: Mapping[type[IcebergType], Callable[[Any, Any], bool]] = {
    BooleanType: lambda kind, wanted: is_a.is_boolean(kind),
    IntegerType: lambda kind, wanted: is_a.is_int32(kind),
    LongType: lambda kind, wanted: is_a.is_int64(kind) or is_a.is_int32(kind),
    FloatType: lambda kind, wanted: is_a.is_float32(kind),
    DoubleType: lambda kind, wanted: is_a.is_float64(kind) or is_a.is_float32(kind),
    DecimalType: lambda kind, wanted: (
        is_a.is_decimal128(kind)
        and kind.scale == wanted.scale
        and kind.precision <= wanted.precision
    ),
    DateType: lambda kind, wanted: is_a.is_date32(kind),
    TimestampType: lambda kind, wanted: kind == pa.timestamp("us"),
    TimestamptzType: lambda kind, wanted: (
        is_a.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None
    ),
    StringType: lambda kind, wanted: is_a.is_string(kind) or is_a.is_large_string(kind),
    BinaryType: lambda kind, wanted: is_a.is_binary(kind) or is_a.is_large_binary(kind),
}
"""What Spark takes as the table's types; it has none for the others, or takes them otherwise."""
