"""The data files of a source as columns,
since a million of them do not fit in memory as objects.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import IcebergType

from backfill.iceberg.file_columns import WrittenField
from backfill.iceberg.missing_columns import initial_value
from backfill.iceberg.timestamp_units import Ticks, ticks_of
from backfill.planning.plan import DeleteFile, SourceInput

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

UNKNOWN = -1
"""Number of rows, or of those without a timestamp, if metadata does not have it."""


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """What the partition of some files says about their rows."""

    identity: str
    """Identity values by source field id as a JSON object, in the form of
    :attr:`backfill.planning.plan.Split.partition`.
    """
    range_us: tuple[int, int] | None
    """The least and greatest timestamp (inclusive) that the partition allows;
    None if it does not limit them.
    """
    numbers: Mapping[int, int | None]
    """Identity values that are numbers or null, by source field id. They are the values of files
    that lack the column.
    """


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column by its name in the pinned schema,
    and by its field id, which is the same in all files.
    """

    name: str
    field_id: int
    kind: IcebergType
    parents: tuple[int, ...] = ()
    """Field ids of the structs that contain it, from the outermost in."""
    initial: int | None = None
    """Value in files that were written before the column was added,
    in the column's own unit; None for null.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampColumn(ColumnRef):
    """The timestamp column of a source; or, with a key, the map that it is in."""

    ticks: Ticks
    key: str | None = None

    def path_in(self, to: Sequence[WrittenField]) -> list[str]:
        """The names that lead to it in a file that has it."""
        return [*(part.name for part in to), *([] if self.key is None else [self.key])]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group, and the bounds of its timestamps."""

    rows: int
    bytes: int
    """Compressed size."""
    lower_us: int | None
    """None if the footer does not have it, or if no row has a timestamp."""
    upper_us: int | None
    nulls: int
    """Number of rows without a timestamp, or :data:`UNKNOWN`."""

    @property
    def empty(self) -> bool:
        """Whether no row has a timestamp."""
        return self.rows in (0, self.nulls)


@dataclass(slots=True)
class SourceFiles:
    """Data files of a source that may hold rows of the read range.

    Each column has one element for each file.

    ``lower_us`` and ``upper_us`` are valid only where ``bounded``; planning fills in the others.
    """

    source: SourceInput
    column: TimestampColumn
    kafka_columns: tuple[ColumnRef, ...]
    """Columns with the Kafka partition and offset, as far as the source names them."""
    mapping: NameMapping | None
    """Names of columns in files without field ids;
    None if the table has no name mapping for such files.
    """
    open: Callable[[str], BinaryIO]
    path: pa.StringArray
    file_bytes: Int64s
    rows: Int64s
    """Number of rows, or :data:`UNKNOWN` if the manifest has a wrong one. Planning fills it in."""
    lower_us: Int64s
    upper_us: Int64s
    bounded: Bools
    nulls: Int64s
    """Number of rows without a timestamp, or :data:`UNKNOWN`."""
    spec_id: Int32s
    partition: Int32s
    """Index in ``partitions``."""
    partitions: list[PartitionValues]
    group_starts: pa.ListArray
    """Offsets of the row groups in the file, by the manifest; null if it does not have them."""
    deletes: Int32s
    """Index in ``delete_sets``."""
    delete_sets: list[tuple[DeleteFile, ...]]
    offset_bounds: Int64s | None = None
    """Bounds of Kafka partition and offset, in the form of
    :data:`backfill.planning.missing_offsets.OffsetBounds`; None unless the source names both
    columns.
    """
    groups_in_maps: dict[str, tuple[RowGroup, ...]] = field(default_factory=dict)
    """By path, the row groups of files whose timestamps are in a map, as far as they were read."""

    def __len__(self) -> int:
        """Number of files."""
        return len(self.path)

    def value_without(self, row: int, column: ColumnRef) -> int | None:
        """The value of all rows of a file that lacks the column: that of its partition, or else the
        initial default.
        """
        return self.partitions[int(self.partition[row])].numbers.get(
            column.field_id, column.initial
        )

    def arrival_without(self, row: int) -> int | None:
        """The same for the timestamp column, in microseconds."""
        value = self.value_without(row, self.column)
        return None if value is None else self.column.ticks.floor_us(value)

    def keep(self, chosen: Bools) -> None:
        """Removes all files except the chosen ones."""
        if chosen.all():
            return
        mask = pa.array(chosen)
        self.path, self.group_starts = self.path.filter(mask), self.group_starts.filter(mask)
        self.file_bytes, self.rows = self.file_bytes[chosen], self.rows[chosen]
        self.lower_us, self.upper_us, self.bounded = (
            self.lower_us[chosen],
            self.upper_us[chosen],
            self.bounded[chosen],
        )
        self.nulls, self.spec_id = self.nulls[chosen], self.spec_id[chosen]
        self.partition, self.deletes = self.partition[chosen], self.deletes[chosen]
        if self.offset_bounds is not None:
            self.offset_bounds = self.offset_bounds[:, chosen]


def column_ref(schema: Schema, name: str) -> ColumnRef:
    """A column of a table, by its name."""
    field = schema.find_field(name)
    return ColumnRef(
        name,
        field.field_id,
        field.field_type,
        tuple(_parents(schema, field.field_id)),
        initial_value(field),
    )


def timestamp_column(source: SourceInput, schema: Schema) -> TimestampColumn:
    """The timestamp column of a pinned source, in its table's schema."""
    in_map = source.timestamp_key is not None and schema.find_column_name(source.timestamp_field_id)
    column = column_ref(schema, in_map or source.timestamp_column)
    ticks = ticks_of(source.timestamp_type, source.timestamp_unit)
    return TimestampColumn(
        name=column.name,
        field_id=column.field_id,
        kind=column.kind,
        parents=column.parents,
        initial=column.initial,
        ticks=ticks,
        key=source.timestamp_key,
    )


def _parents(schema: Schema, field_id: int) -> Iterator[int]:
    parent = schema._lazy_id_to_parent.get(field_id)
    if parent is not None:
        yield from _parents(schema, parent)
        yield parent
