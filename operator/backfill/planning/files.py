"""The data files of one source as columns: a million of them do not fit in memory as objects."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import IcebergType

from backfill.iceberg.timestamps import Ticks, ticks_of
from backfill.iceberg.values import initial_value
from backfill.planning.plan import DeleteFile, SourceInput

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

UNKNOWN = -1
"""A number of rows without a timestamp that metadata does not tell."""


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """What the partition of some files tells about their rows."""

    identity: str
    """JSON object of identity values by source field id, as
    :attr:`backfill.planning.plan.Split.partition` has it.
    """
    range_us: tuple[int, int] | None
    """The least and greatest timestamp (inclusive) the partition allows; None where it tells
    nothing.
    """
    numbers: Mapping[int, int | None]
    """Identity values that are numbers or null, by source field id: what files without the column
    have in it.
    """


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column by its name in the pinned schema and its field id, which is the same in all
    files.
    """

    name: str
    field_id: int
    kind: IcebergType
    parents: tuple[int, ...] = ()
    """The structs it is in, by field id, the outermost first."""
    initial: int | None = None
    """What rows of files written before the column was added have in it, in its own unit; None:
    nothing.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampColumn(ColumnRef):
    """The arrival column of a source."""

    ticks: Ticks


@dataclass(slots=True)
class SourceFiles:
    """Data files of one source that can hold rows of the read range, one element of each column per
    file.

    ``lower_us`` and ``upper_us`` mean something only where ``bounded``; planning fills in the
    others.
    """

    source: SourceInput
    column: TimestampColumn
    kafka_columns: tuple[ColumnRef, ...]
    """Kafka partition and offset, as far as the source names them."""
    mapping: NameMapping | None
    """What columns are called in files without field ids; None: the table has no name mapping for
    such files.
    """
    open: Callable[[str], BinaryIO]
    path: pa.StringArray
    file_bytes: Int64s
    rows: Int64s
    lower_us: Int64s
    upper_us: Int64s
    bounded: Bools
    nulls: Int64s
    """Rows without a timestamp, or :data:`UNKNOWN`."""
    spec_id: Int32s
    partition: Int32s
    """Index in ``partitions``."""
    partitions: list[PartitionValues]
    group_starts: pa.ListArray
    """Where row groups begin in the file, by the manifest; null where it does not say."""
    deletes: Int32s
    """Index in ``delete_sets``."""
    delete_sets: list[tuple[DeleteFile, ...]]

    def __len__(self) -> int:
        """How many files there are."""
        return len(self.path)

    def value_without(self, row: int, column: ColumnRef) -> int | None:
        """What a file has in all its rows if it does not have the column: its partition's value,
        else the first default.
        """
        return self.partitions[int(self.partition[row])].numbers.get(
            column.field_id, column.initial
        )

    def arrival_without(self, row: int) -> int | None:
        """The same of the arrival column, in microseconds."""
        value = self.value_without(row, self.column)
        return None if value is None else self.column.ticks.floor_us(value)

    def keep(self, chosen: Bools) -> None:
        """Leaves only the chosen files."""
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


def column_ref(schema: Schema, name: str) -> ColumnRef:
    """A column of a table by its name."""
    field = schema.find_field(name)
    return ColumnRef(
        name,
        field.field_id,
        field.field_type,
        tuple(_parents(schema, field.field_id)),
        initial_value(field),
    )


def timestamp_column(source: SourceInput, schema: Schema) -> TimestampColumn:
    """The arrival column of a pinned source, in its table's schema."""
    column = column_ref(schema, source.timestamp_column)
    ticks = ticks_of(source.timestamp_type, source.timestamp_unit)
    return TimestampColumn(
        name=column.name,
        field_id=column.field_id,
        kind=column.kind,
        parents=column.parents,
        initial=column.initial,
        ticks=ticks,
    )


def _parents(schema: Schema, field_id: int) -> Iterator[int]:
    parent = schema._lazy_id_to_parent.get(field_id)
    if parent is not None:
        yield from _parents(schema, parent)
        yield parent
