"""The data files of one source as columns: a million of them do not fit in memory as objects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backfill.planning.plan import DeleteFile, SourceInput
from backfill.planning.timestamps import Ticks, ticks_of

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

UNKNOWN = -1
"""A number of rows without a timestamp that metadata does not tell."""


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """What the partition of some files tells about their rows."""

    identity: str
    """JSON object of identity values by source field id, as :attr:`backfill.planning.plan.Split.partition` has it."""
    range_us: tuple[int, int] | None
    """The least and greatest timestamp (inclusive) the partition allows; None where it tells nothing."""


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column by its name in the pinned schema and its field id, which is the same in all files."""

    name: str
    field_id: int
    names: tuple[str, ...] | None
    """What it may be called in files without field ids; None: the table has no name mapping for such files."""


@dataclass(frozen=True, slots=True)
class TimestampColumn(ColumnRef):
    """The arrival column of a source."""

    ticks: Ticks
    initial_us: int | None = None
    """The value of rows in files written before the column was added; None: they have no timestamp."""


@dataclass(slots=True)
class SourceFiles:
    """Data files of one source that can hold rows of the read range, one element of each column per file.

    ``lower_us`` and ``upper_us`` mean something only where ``bounded``; planning fills in the others.
    """

    source: SourceInput
    column: TimestampColumn
    kafka_columns: tuple[ColumnRef, ...]
    """Kafka partition and offset, as far as the source names them."""
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

    def keep(self, chosen: Bools) -> None:
        """Leaves only the chosen files."""
        if chosen.all():
            return
        mask = pa.array(chosen)
        self.path, self.group_starts = self.path.filter(mask), self.group_starts.filter(mask)
        self.file_bytes, self.rows = self.file_bytes[chosen], self.rows[chosen]
        self.lower_us, self.upper_us, self.bounded = self.lower_us[chosen], self.upper_us[chosen], self.bounded[chosen]
        self.nulls, self.spec_id = self.nulls[chosen], self.spec_id[chosen]
        self.partition, self.deletes = self.partition[chosen], self.deletes[chosen]


def timestamp_column(source: SourceInput, initial: int | None, names: tuple[str, ...] | None) -> TimestampColumn:
    """The arrival column of a pinned source; ``initial`` is its initial default in its own unit, ``names`` as :class:`ColumnRef`
    has them."""
    ticks = ticks_of(source.timestamp_type, source.timestamp_unit)
    initial_us = None if initial is None else ticks.floor_us(initial)
    return TimestampColumn(source.timestamp_column, source.timestamp_field_id, names, ticks, initial_us)
