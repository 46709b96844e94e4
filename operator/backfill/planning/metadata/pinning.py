"""Opens source tables and pins what is read of them: snapshot, schema, timestamp column, filter."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.types import (
    IcebergType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
)

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.field_types import map_and_key
from backfill.api.quantities import format_time, to_us
from backfill.api.source import SnapshotRef, Source
from backfill.api.static_table import StaticTable
from backfill.iceberg.open_tables import Catalogs, near
from backfill.iceberg.timestamp_units import describe_us
from backfill.planning.metadata.source_filter import check_filters, row_filter
from backfill.planning.plan import SourceInput, StaticInput

TIMESTAMP_TYPES = ("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")

_NOT_IN_A_MAP = (
    "use a column that is not inside a list or map; if there is none, add one to the table and copy"
    " the value into it"
)
_BY_ITS_KEY = "a timestampColumn in a map with string keys is written as map['key']"


@dataclass(frozen=True)
class PinnedTable:
    """A source table, and exactly what is read of it."""

    field: str
    """Path of the source in the resource."""
    table: Table
    snapshot: Snapshot
    schema: Schema
    row_filter: BooleanExpression
    source: SourceInput
    appends: tuple[Snapshot, ...] | None = None
    """Snapshots that have appended the files that are read; None for all files of the snapshot."""
    left_out: Sequence[str] = ()
    """Columns of the table that are not read, as nobody here can pass them on."""


def pin(catalogs: Catalogs, source: Source, field: str) -> PinnedTable:
    """Opens a source's table and pins its snapshot.

    Raises:
        InvalidPlanInput: with every mistake that was found in this source.
    """
    table = catalogs.load_source(source.table, f"{field}.table")
    snapshot = _pin_snapshot(table, source.table, source.snapshot, field, f"{field}.snapshot")
    schema = _schema_of(table, snapshot, source.snapshot)
    problems: list[Problem] = []
    timestamp = _timestamp(schema, source, field, problems)
    problems += check_filters(source, schema, field)
    _check_kafka_columns(schema, source, field, problems)
    if timestamp is None or problems:
        raise InvalidPlanInput(problems)
    pinned = SourceInput(
        name=source.name,
        table=source.table,
        table_uuid=str(table.metadata.table_uuid),
        snapshot_id=snapshot.snapshot_id,
        schema_id=schema.schema_id,
        timestamp_column=source.timestamp_column,
        timestamp_field_id=timestamp.field_id,
        timestamp_key=timestamp.key,
        timestamp_type="long" if isinstance(timestamp.kind, IntegerType) else str(timestamp.kind),
        timestamp_unit=source.timestamp_unit,
        row_filter=source.filter,
        region_column=source.regions.column if source.regions else None,
        regions=source.regions.in_ if source.regions else None,
        kafka_partition_column=source.kafka.partition_column,
        kafka_offset_column=source.kafka.offset_column,
        drop_duplicates=source.kafka.drop_duplicates or None,
        keep_deleted=source.deletes == "Ignore" or None,
        watermark_property=source.watermark.property if source.watermark else None,
        watermark_unit=source.watermark.unit if source.watermark else None,
    )
    left_out = catalogs.left_out[source.table]
    wanted = row_filter(pinned)
    return PinnedTable(field, table, snapshot, schema, wanted, pinned, left_out=left_out)


def pin_static(
    catalogs: Catalogs, static: StaticTable, window_end: datetime, field: str
) -> StaticInput:
    """Opens a static table and pins its snapshot.

    Raises:
        InvalidPlanInput: there is no such table or snapshot.
    """
    table = catalogs.load_source(static.table, f"{field}.table")
    wish = static.snapshot(window_end)
    snapshot = _pin_snapshot(table, static.table, wish, field, field)
    return StaticInput(
        table=static.table,
        table_uuid=str(table.metadata.table_uuid),
        snapshot_id=snapshot.snapshot_id,
        schema_id=_schema_of(table, snapshot, wish).schema_id,
    )


def check_pinned(catalogs: Catalogs, source: SourceInput | StaticInput, field: str) -> None:
    """Checks that a plan's table and snapshot still exist.

    Raises:
        InvalidPlanInput: the table no longer exists or was replaced, or the snapshot has expired.
    """
    table = catalogs.load_source(source.table, f"{field}.table")
    if str(table.metadata.table_uuid) != source.table_uuid:
        raise InvalidPlanInput(
            Problem(
                f"{field}.table",
                f"table {source.table} was dropped and created again after the plan was made",
                "start a new Backfill on the new table",
            )
        )
    if table.snapshot_by_id(source.snapshot_id) is None:
        is_source = isinstance(source, SourceInput)
        raise InvalidPlanInput(
            Problem(
                f"{field}.snapshot" if is_source else f"{field}.asOf",
                f"snapshot {source.snapshot_id} of {source.table},"
                " which the plan reads, has expired",
                "start a new Backfill"
                + (
                    ", with snapshot.protect: true to keep its snapshot from expiring"
                    if is_source
                    else ""
                ),
            )
        )


def _pin_snapshot(
    table: Table, name: str, wish: SnapshotRef, field: str, snapshot_field: str
) -> Snapshot:
    """``snapshot_field`` is where the resource says which snapshot."""
    current = table.current_snapshot()
    if current is None:
        raise InvalidPlanInput(
            Problem(
                f"{field}.table",
                f"table {name} has no snapshot: nothing was ever written to it",
                "use the table that contains the rows; if this table is meant to be empty, commit"
                " an append without rows to it",
            )
        )
    if wish.id is not None:
        found = table.snapshot_by_id(wish.id)
        return found or _no_snapshot(
            table, wish, snapshot_field, f"snapshot {wish.id} of {name} does not exist"
        )
    if wish.as_of is None:
        return current
    log = table.history()
    place = next(
        (
            place
            for place in reversed(range(len(log)))
            if log[place].timestamp_ms * 1000 <= to_us(wish.as_of)
        ),
        None,
    )
    moment = format_time(wish.as_of)
    if place is None:
        return _no_snapshot(
            table, wish, snapshot_field, f"{name} has no snapshot as old as {moment}"
        )
    found = table.snapshot_by_id(log[place].snapshot_id)
    if found is None:
        what = (
            f"snapshot {log[place].snapshot_id}, which was current in {name} at {moment}, has"
            " expired"
        )
        return _no_snapshot(table, wish, snapshot_field, what)
    if place + 1 < len(log) and not _follows(table, log[place + 1].snapshot_id, found):
        what = (
            f"the snapshot that was current in {name} at {moment} is unknown: snapshots after"
            f" {found.snapshot_id} have expired or were rolled back"
        )
        return _no_snapshot(table, wish, snapshot_field, what)
    return found


def _follows(table: Table, snapshot_id: int, earlier: Snapshot) -> bool:
    """Whether no other snapshot can have been current between two neighbours in the history.
    Expiration removes a snapshot from the history, and may leave its child without a parent.
    """
    later = table.snapshot_by_id(snapshot_id)
    if later is None:
        return False
    # format version 1 has none, or zeros
    first, second = earlier.sequence_number, later.sequence_number
    if first and second == first + 1:
        return True
    return any(
        ancestor.snapshot_id == earlier.snapshot_id
        for ancestor in ancestors_of(later, table.metadata)
    )


def _no_snapshot(table: Table, wish: SnapshotRef, field: str, message: str) -> Snapshot:
    kept = sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)
    oldest, newest = kept[0], kept[-1]
    fix = (
        f"choose one of the {len(kept)} retained snapshots, from"
        f" {describe_us(oldest.timestamp_ms * 1000)} (id {oldest.snapshot_id}) to"
        f" {describe_us(newest.timestamp_ms * 1000)} (id {newest.snapshot_id}), or omit the field"
        " to use the current snapshot"
    )
    key = "id" if wish.id is not None else "asOf"
    raise InvalidPlanInput(Problem(f"{field}.{key}", message, fix))


def _schema_of(table: Table, snapshot: Snapshot, wish: SnapshotRef) -> Schema:
    """The schema of a snapshot that the spec names. Otherwise the table's schema, as in Iceberg's
    own readers: columns may have been renamed or added since the last write.
    """
    schema_id = snapshot.schema_id if wish.is_chosen else None
    return table.schema() if schema_id is None else table.schemas().get(schema_id, table.schema())


def _find(schema: Schema, name: str) -> NestedField | None:
    try:
        return schema.find_field(name)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class _Timestamp:
    """The timestamp column in a schema."""

    field_id: int
    """Of the column, or of the map that it is in."""
    kind: IcebergType
    key: str | None = None
    """Its key in the map."""


def _find_timestamp(schema: Schema, name: str) -> _Timestamp | None:
    found = _find(schema, name)
    if found is not None:
        return _Timestamp(found.field_id, found.field_type)
    in_map = map_and_key(name)
    found = None if in_map is None else _find(schema, in_map[0])
    if in_map is None or found is None or not isinstance(found.field_type, MapType):
        return None
    if not isinstance(found.field_type.key_type, StringType):
        return None
    return _Timestamp(found.field_id, found.field_type.value_type, in_map[1])


def _timestamp(
    schema: Schema, source: Source, field: str, problems: list[Problem]
) -> _Timestamp | None:
    column, unit = source.timestamp_column, source.timestamp_unit
    found = _find_timestamp(schema, column)
    where = f"{field}.timestampColumn"
    if found is None:
        problems.append(_missing(column, schema, source, where))
        return None
    kind = str(found.kind)
    is_a = f"column {column} of {source.table} is a {kind}"
    if isinstance(found.kind, (LongType, IntegerType)):
        if unit is None:
            fix = "set timestampUnit to s, ms, us or ns"
            problems.append(Problem(f"{field}.timestampUnit", f"{is_a}; its unit is missing", fix))
    elif kind not in TIMESTAMP_TYPES:
        problems.append(
            Problem(where, is_a, "use a timestamp column, or a long with timestampUnit")
        )
    elif unit is not None:
        problems.append(
            Problem(
                f"{field}.timestampUnit",
                f"{is_a}, which has its own unit",
                "omit timestampUnit",
            )
        )
    if _is_repeated(schema, found.field_id):
        problems.append(_repeated(column, source, where))
    return found


def _check_kafka_columns(
    schema: Schema, source: Source, field: str, problems: list[Problem]
) -> None:
    kafka = source.kafka
    for key, column in (
        ("partitionColumn", kafka.partition_column),
        ("offsetColumn", kafka.offset_column),
    ):
        if column is None:
            continue
        found = _find(schema, column)
        where = f"{field}.kafka.{key}"
        if found is None:
            problems.append(_missing(column, schema, source, where))
        elif not isinstance(found.field_type, (LongType, IntegerType)):
            is_a = f"column {column} of {source.table} is a {found.field_type}"
            problems.append(Problem(where, is_a, "use an int or long column"))
        elif _is_repeated(schema, found.field_id):
            problems.append(_repeated(column, source, where))


def _missing(column: str, schema: Schema, source: Source, where: str) -> Problem:
    for name, field_id in schema._name_to_id.items():
        kind, below = schema.find_type(field_id), column.removeprefix(name)
        if not isinstance(kind, MapType) or below == column or below[:1] not in {".", "["}:
            continue
        message = (
            f"column {name} of {source.table} is a map, and {column} would be one of its values,"
            " which have no columns of their own"
        )
        return Problem(where, message, f"{_NOT_IN_A_MAP}; {_BY_ITS_KEY}")
    fix = near(column, schema._name_to_id)
    return Problem(where, f"table {source.table} has no column {column}", fix)


def _is_repeated(schema: Schema, field_id: int) -> bool:
    parent = schema._lazy_id_to_parent.get(field_id)
    return parent is not None and (
        not schema.find_type(parent).is_struct or _is_repeated(schema, parent)
    )


def _repeated(column: str, source: Source, where: str) -> Problem:
    message = f"column {column} of {source.table} is inside a list or map"
    return Problem(where, message, f"{_NOT_IN_A_MAP}; {_BY_ITS_KEY}")
