"""Files as a batch DataFrame of Spark's own Parquet reader, which decodes them in the JVM.

Columns that a query does not use and rows that its filters leave out are not read, since reader and
query are one plan.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property, reduce

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.types import IcebergType, ListType, MapType, NestedField
from pyiceberg.types import StructType as IcebergStruct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    FractionalType,
    StructField,
    StructType,
)
from pyspark.sql.types import MapType as SparkMap

from backfill.iceberg.timestamps import ticks_of
from backfill.planning.plan import Split
from backfill.runtime.batch.arrival_range import ArrivalRange, arrival_range
from backfill.runtime.batch.native_files import NativeFile, NativeFiles
from backfill.runtime.batch.native_relation import relation_of
from backfill.runtime.batch.row_conditions import (
    UntranslatableError,
    column_at_path,
    literal_of,
    row_condition,
)
from backfill.runtime.source.record_columns import OFFSET, PARTITION, RECORD_COLUMNS, TOPIC
from backfill.runtime.source.row_selection import path_of
from backfill.runtime.source.table import SourceTable

_MOST_RANGES = 16
"""Files that are read in more different ranges are left to the other reader: each range is a branch
of the query's plan.
"""


class NativeLeaf:
    """Reads of one source what Spark's reader reads exactly as this package does."""

    def __init__(self, spark: SparkSession, table: SourceTable):
        self._spark = spark
        self._table = table.open()
        self._files = NativeFiles(self._table)
        self._arrival = self._path(table.source.timestamp_field_id)

    def take(
        self,
        splits: Sequence[Split],
        schema: StructType,
        *,
        columns: frozenset[str] | None,
        topic: str | None,
    ) -> tuple[DataFrame | None, list[Split]]:
        """The rows of some of the splits, which were merged, and the splits that are left.

        Args:
            schema: the source's columns, with what Kafka adds if there is a ``topic``.
            columns: the columns that matter, None for all; the others are null.
        """
        wanted = [name for name in schema.names if columns is None or name in columns]
        if OFFSET in wanted:
            return None, list(splits)
        read = {name for name in wanted if name not in RECORD_COLUMNS} | self._filtered
        chosen, left = self._chosen(splits, read)
        frames: list[DataFrame] = []
        for within, files in chosen.items():
            rows = self._rows(within, files, schema, read, moments=topic is None)
            if rows is None:
                paths = {file.path for file in files}
                left += [split for split in splits if split.path in paths]
                continue
            frames.append(
                rows.select([_given(name, wanted, schema, topic) for name in schema.names])
            )
        return (reduce(DataFrame.union, frames) if frames else None), left

    def _rows(
        self,
        within: ArrivalRange,
        files: Sequence[NativeFile],
        schema: StructType,
        read: set[str],
        *,
        moments: bool,
    ) -> DataFrame | None:
        """The rows that are read of some files, with at least the columns in ``read``; None if
        Spark cannot select them.
        """
        try:
            conditions = (self._in_range(within, moments), self._condition(moments))
        except UntranslatableError:
            return None
        names = read if within.is_all else read | {self._arrival[0]}
        rows = relation_of(self._spark, files, self._with_ids(schema, names))
        for condition in conditions:
            rows = rows if rows is None or condition is None else rows.where(condition)
        return rows

    def _chosen(
        self, splits: Sequence[Split], read: set[str]
    ) -> tuple[dict[ArrivalRange, list[NativeFile]], list[Split]]:
        """The files to read by the range that is read of them, and the splits of all others."""
        known = self._files.of(splits)
        of_file: dict[str, list[Split]] = defaultdict(list)
        for split in splits:
            of_file[split.path].append(split)
        found: dict[ArrivalRange, list[NativeFile]] = defaultdict(list)
        for path, file in known.items():
            within = arrival_range(of_file[path], file.groups)
            if within is None or file.unfit & (
                read if within.is_all else read | {self._arrival[0]}
            ):
                continue
            found[within].append(file)
        largest = sorted(found, key=lambda each: -sum(file.bytes for file in found[each]))
        chosen = {each: found[each] for each in largest[:_MOST_RANGES]}
        taken = {file.path for files in chosen.values() for file in files}
        return chosen, [split for split in splits if split.path not in taken]

    @cached_property
    def _filtered(self) -> set[str]:
        """The top-level columns that the source's filter looks at."""
        if self._table.row_filter == AlwaysTrue():
            return set()
        ids = extract_field_ids(self._table.row_filter)
        return {self._path(field_id)[0] for field_id in ids}

    def _condition(self, moments: bool) -> Column | None:
        if self._table.row_filter == AlwaysTrue():
            return None
        return row_condition(self._table.row_filter, self._table.schema, moments=moments)

    def _in_range(self, wanted: ArrivalRange, moments: bool) -> Column | None:
        if wanted.is_all:
            return None
        source = self._table.source
        kind = self._table.schema.find_field(source.timestamp_field_id).field_type
        ticks = ticks_of(source.timestamp_type, source.timestamp_unit)
        arrival = column_at_path(self._arrival)
        condition = arrival.isNotNull()
        if wanted.start_us is not None:
            start = literal_of(kind, ticks.first_at(wanted.start_us), moments=moments)
            condition &= arrival >= start
        if wanted.end_us is not None:
            condition &= arrival < literal_of(kind, ticks.first_at(wanted.end_us), moments=moments)
        return condition

    def _with_ids(self, schema: StructType, names: Iterable[str]) -> StructType:
        chosen = [field for field in self._table.schema.fields if field.name in set(names)]
        return _identified(chosen, [schema[field.name] for field in chosen])

    def _path(self, field_id: int) -> list[str]:
        return path_of(self._table.schema.as_struct(), field_id) or []


def _given(name: str, wanted: Sequence[str], schema: StructType, topic: str | None) -> Column:
    """A column as the source gives it."""
    kind = schema[name].dataType
    if name not in wanted:
        return F.lit(None).cast(kind).alias(name)
    match name:
        case _ if name not in RECORD_COLUMNS:
            column = column_at_path([name])
            if isinstance(kind, FractionalType) and not isinstance(kind, DecimalType):
                # Statistics know neither NaN, which is greater than all numbers to Spark, nor that
                # two zeros are equal: filters on expressions are not compared with them.
                column = F.nanvl(column, F.lit(math.nan).cast(kind))
            return column.alias(name, metadata={})
        case _ if name == TOPIC:
            return F.lit(topic).alias(name)
        case _ if name == PARTITION:
            return F.lit(0).cast(kind).alias(name)
    return F.lit(None).cast(kind).alias(name)


def _identified(fields: Iterable[NestedField], given: Iterable[StructField]) -> StructType:
    """Spark's columns with the field ids of Iceberg's, by which they are found in files."""
    return StructType(
        [
            StructField(
                column.name,
                _type(field.field_type, column.dataType),
                metadata={"parquet.field.id": field.field_id},
            )
            for field, column in zip(fields, given, strict=True)
        ]
    )


def _type(kind: IcebergType, given: DataType) -> DataType:
    match kind, given:
        case IcebergStruct(), StructType():
            return _identified(kind.fields, given.fields)
        case ListType(), ArrayType():
            return ArrayType(_type(kind.element_type, given.elementType))
        case MapType(), SparkMap():
            return SparkMap(
                _type(kind.key_type, given.keyType), _type(kind.value_type, given.valueType)
            )
    return given
