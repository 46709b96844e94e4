"""Random Iceberg tables as other writers and migrations leave them, made without the product, and
the rows in them.
"""

import json
import struct
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
)
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from random_columns import ARRIVALS, TIMES, Column, Stored, Wishes, mapping_of, stored, without

from iceberg_tables import (
    commit_manifests,
    data_file,
    deletion_vectors,
    position_deletes,
    write_manifest,
)

START_S = 1_772_323_200
"""2026-03-01T00:00:00Z, around which rows lie."""
HOURS = 12
FAR_S = (253_402_300_799, 400_000_000_000, -62_135_596_801, -3_000_000_000)
"""The last second of the year 9999, and moments beyond what calendars and nanoseconds have."""
DOTTED = ("kafka.partition", "data center", "région", "a.b.c", 'wo"rd', "in")

Row = dict[str, Any]
"""Values by the column's name; of the arrival column in its ticks."""


@dataclass(frozen=True)
class FileRow:
    """A row in a file of a table."""

    path: str
    position: int
    values: Row
    arrival: int | None
    """In ticks of the column."""
    kafka: tuple[int | None, int | None]
    deleted: bool


@dataclass
class RandomTable:
    """A table that was made, and all that has to be known of it."""

    name: str
    columns: tuple[Column, ...]
    arrival: tuple[str, ...]
    """The path to the arrival column."""
    unit: str | None
    ticks: int
    """Ticks of the arrival column in a second."""
    kafka: tuple[str, str] | None
    rows: list[FileRow] = field(default_factory=list)
    unknowable: bool = False
    """Whether something tells planning nothing of when the rows of a file arrived."""

    @property
    def arrival_name(self) -> str:
        return ".".join(self.arrival)

    @property
    def finest(self) -> int:
        """Ticks in a microsecond, or 1 where they are longer."""
        return max(self.ticks // 10**6, 1)


@dataclass(frozen=True)
class _Maker:
    rng: Random
    version: int
    table: Table
    made: RandomTable
    arrival: Column
    sloppy: bool
    """Whether files may say nothing of when their rows arrived."""
    redelivery: Random | None
    """Which records ingestion writes twice; None where it never does."""

    def chance(self, share: float) -> bool:
        return self.rng.random() < share


def make_table(catalog: Catalog, name: str, rng: Random) -> RandomTable:
    """A random table with data in several snapshots."""
    version = rng.choice([2, 3])
    made, arrival = _columns(name, rng, version)
    table = catalog.create_table(
        f"raw.{name}",
        Schema(made.columns[0].nested_field),
        properties={"format-version": str(version)},
    )
    schema = Schema(*(column.nested_field for column in made.columns), schema_id=1)
    updates = [AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate(schema_id=-1)]
    if rng.random() < 0.5:
        lacking = frozenset(each.name for each in _all(made.columns[2:]) if rng.random() < 0.1) - {
            "element",
            "key",
            "value",
        }
        mapping = json.dumps(mapping_of(made.columns, lacking))
        updates.append(SetPropertiesUpdate(updates={"schema.name-mapping.default": mapping}))
    else:
        lacking, mapping = frozenset(), None
    redelivery: Random | None = Random(f"written twice into {name}")
    if redelivery and redelivery.random() < 0.2:
        redelivery = None
    maker = _Maker(rng, version, table, made, arrival, rng.random() < 0.15, redelivery)
    specs = [table.spec(), *(_spec(maker, number) for number in range(1, rng.choice([1, 2, 3])))]
    updates += [AddPartitionSpecUpdate(spec=spec) for spec in specs[1:]]
    catalog.commit_table(table, (), (*updates, SetDefaultSpecUpdate(spec_id=len(specs) - 1)))
    _fill(
        catalog,
        replace(maker, table=catalog.load_table(f"raw.{name}")),
        specs,
        mapping is not None,
        lacking,
    )
    return made


def _all(columns: Sequence[Column]) -> list[Column]:
    return [each for column in columns for each in (column, *_all(column.parts))]


def _columns(name: str, rng: Random, version: int) -> tuple[RandomTable, Column]:
    """The columns of a table: where rows arrived, where they were in Kafka, and others."""
    kind = rng.choice([each for each in ARRIVALS if version == 3 or not each.endswith("_ns")])
    iceberg, unit, ticks, moments = ARRIVALS[kind]
    initial = None
    if version == 3 and rng.random() < 0.2 and not kind.endswith("_ns"):
        initial = _initial(kind, (START_S + rng.randrange(HOURS * 3600)) * ticks)
    title = rng.choice(["ts", "ingested.at", "time stamp"])
    arrival = Column(2, title, "moment", (), initial, iceberg, moments)
    path: tuple[str, ...] = (title,)
    first: Column = arrival
    if rng.random() < 0.25:
        first = Column(1, "meta", "struct", (Column(3, "host", "text"), arrival))
        path = ("meta", title)
    with_kafka = rng.random() < 0.7
    kafka_names = (rng.choice(["partition", "kafka.partition"]), "offset")
    partition = Column(4, kafka_names[0], rng.choice(["int", "whole"]))
    offset = Column(5, kafka_names[1], "counter")
    others = [
        Column(
            6,
            rng.choice(["region", *DOTTED[1:]]),
            "text",
            (),
            "none" if version == 3 and rng.random() < 0.3 else None,
        ),
        Column(7, "n", "whole", (), 3 if version == 3 and rng.random() < 0.3 else None),
        Column(8, "x", "real"),
        Column(9, "price", "price"),
        Column(10, "uid", "uuid"),
        Column(11, "ids", "list", (Column(12, "element", "uuid"),)),
        Column(13, "day", "date"),
        Column(14, "at", "time"),
        Column(15, "seen", "seen"),
        Column(
            16,
            "geo.o",
            "struct",
            (Column(17, "zone", "whole"), Column(18, "l.abel", "text"), Column(19, "seen", "seen")),
        ),
        Column(
            20,
            "tags",
            "map",
            (Column(21, "key", "text"), Column(22, "value", "struct", (Column(23, "v", "whole"),))),
        ),
        Column(
            24, "deep", "list", (Column(25, "element", "list", (Column(26, "element", "whole"),)),)
        ),
    ]
    chosen = [column for column in others if rng.random() < 0.5]
    kafka = (partition, offset) if with_kafka else ()
    made = RandomTable(
        name, (first, *kafka, *chosen), path, unit, ticks, kafka_names if with_kafka else None
    )
    return made, arrival


def _initial(kind: str, value: int) -> Any:
    if kind not in ("timestamp", "timestamptz"):
        return value  # a number
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
    return moment if kind == "timestamptz" else moment.replace(tzinfo=None)


def _spec(maker: _Maker, number: int) -> PartitionSpec:
    """Another partition spec."""
    rng, made = maker.rng, maker.made
    is_time = made.unit is None
    of_arrival: list[Transform[Any, Any]] = [IdentityTransform(), VoidTransform()]
    if is_time:
        of_arrival += [HourTransform(), DayTransform(), MonthTransform(), YearTransform()]
    else:
        of_arrival += [TruncateTransform(3600 * made.ticks)]
    candidates: list[tuple[Column, Sequence[Transform[Any, Any]]]] = [(maker.arrival, of_arrival)]
    for column in made.columns[1:]:
        if column.kind == "text":
            candidates.append(
                (column, [IdentityTransform(), TruncateTransform(1), BucketTransform(2)])
            )
        elif column.kind in ("whole", "int"):
            candidates.append(
                (column, [IdentityTransform(), TruncateTransform(2), BucketTransform(2)])
            )
        elif column.kind in ("date", "uuid", "time", "seen", "price", "real"):
            candidates.append((column, [IdentityTransform()]))
    chosen = rng.sample(candidates, min(len(candidates), rng.choice([1, 1, 2, 3])))
    fields = [
        PartitionField(
            column.field_id,
            1000 + 10 * number + place,
            rng.choice(transforms),
            f"p{number}_{place}",
        )
        for place, (column, transforms) in enumerate(chosen)
    ]
    return PartitionSpec(*fields, spec_id=number)


@dataclass
class _Written:
    """A data file that was written."""

    entry: DataFile
    spec: PartitionSpec
    rows: list[FileRow]


def _fill(
    catalog: Catalog,
    maker: _Maker,
    specs: list[PartitionSpec],
    mapped: bool,
    lacking: frozenset[str],
) -> None:
    rng, table = maker.rng, maker.table
    written: list[_Written] = []
    manifests: list[Any] = []
    offsets: dict[int, int] = defaultdict(int)
    snapshots = rng.choice([1, 2, 3])
    for sequence in range(1, snapshots + 1):
        for spec in rng.sample(specs, rng.randint(1, len(specs))):
            files = _write_rows(maker, spec, mapped, lacking, offsets, sequence)
            written += files
            path = f"{table.location()}/metadata/{sequence}-{spec.spec_id}.avro"
            entries = [each.entry for each in files]
            manifests.append(
                write_manifest(table, path, entries, 1, sequence=sequence, spec_id=spec.spec_id)
            )
    deletes = _delete_rows(maker, written) if maker.chance(0.6) else []
    for number, (spec, entries) in enumerate(deletes):
        path = f"{table.location()}/metadata/deletes{number}.avro"
        manifests.append(
            write_manifest(
                table, path, entries, 1, deletes=True, sequence=snapshots + 1, spec_id=spec.spec_id
            )
        )
    commit_manifests(catalog, table, manifests, 1)
    maker.made.rows = [row for each in written for row in each.rows]


def _write_rows(
    maker: _Maker,
    spec: PartitionSpec,
    mapped: bool,
    lacking: frozenset[str],
    offsets: dict[int, int],
    snapshot: int,
) -> list[_Written]:
    """Draws rows and writes them, those of a partition together."""
    rng, made = maker.rng, maker.made
    rows = [_draw(maker, offsets) for _ in range(rng.choice([3, 10, 40]))]
    if maker.chance(0.6):
        rows.sort(key=lambda row: (_arrival_of(row, made) is None, _arrival_of(row, made) or 0))
    partitions: dict[str, list[Row]] = defaultdict(list)
    tuples: dict[str, tuple[Any, ...]] = {}
    for row in rows:
        values = tuple(_partition_value(each, row, maker) for each in spec.fields)
        partitions[repr(values)].append(row)
        tuples[repr(values)] = values
    files: list[_Written] = []
    for key, inside in partitions.items():
        count = rng.choice([1, 1, 2, 3])
        for part in range(count):
            some = inside[part * len(inside) // count : (part + 1) * len(inside) // count]
            if some:
                name = f"{snapshot}-{spec.spec_id}-{len(files)}.parquet"
                files.append(_write_file(maker, spec, tuples[key], some, mapped, lacking, name))
    return files


def _draw(maker: _Maker, offsets: dict[int, int]) -> Row:
    rng, made = maker.rng, maker.made
    row = {column.name: column.draw(rng) for column in made.columns if column is not maker.arrival}
    second = START_S + rng.randrange(HOURS * 3600)
    if maker.chance(0.5):
        second = second // 1800 * 1800
    if maker.chance(0.03):
        second = rng.choice(FAR_S)
    value: int | None = second * made.ticks + (
        rng.randrange(made.ticks) if maker.chance(0.5) else 0
    )
    if value is not None and not -(2**63) <= value < 2**63:
        value = START_S * made.ticks
    if maker.chance(0.05):
        value = None
    if len(made.arrival) == 1:
        row[made.arrival[0]] = value
    elif row["meta"] is not None:
        row["meta"][made.arrival[1]] = value
    if made.kafka is not None:
        partition = rng.choice([0, 0, 1, 7])
        row[made.kafka[0]] = partition
        row[made.kafka[1]] = offsets[partition]
        if maker.redelivery and maker.redelivery.random() < 0.5:
            row[made.kafka[1]] = max(offsets[partition] - maker.redelivery.randint(0, 4), 0)
        offsets[partition] += rng.choice([1, 1, 1, 5])
    return row


def _arrival_of(row: Row, made: RandomTable) -> int | None:
    value: Any = row
    for name in made.arrival:
        value = value[name] if value is not None else None
    return value


def _source_value(row: Row, column: Column, maker: _Maker) -> Any:
    return _arrival_of(row, maker.made) if column is maker.arrival else row[column.name]


def _partition_value(part: PartitionField, row: Row, maker: _Maker) -> Any:
    columns = [maker.arrival, *maker.made.columns]
    column = next(each for each in columns if each.field_id == part.source_id)
    value = _source_value(row, column, maker)
    if value is None:
        return None
    ticks = maker.made.ticks
    match part.transform:
        case VoidTransform():
            return None
        case HourTransform():
            return value // (3600 * ticks)
        case DayTransform():
            return value // (86_400 * ticks)
        case MonthTransform() | YearTransform():
            unit = "M" if isinstance(part.transform, MonthTransform) else "Y"
            day = np.datetime64(int(value // (86_400 * ticks)), "D")
            return int(day.astype(f"datetime64[{unit}]").astype(np.int64))
    stored_value = _internal(column, value)
    return part.transform.transform(column.type)(stored_value)


def _internal(column: Column, value: Any) -> Any:
    """A value as Iceberg keeps it in partitions."""
    if column.kind == "uuid":
        return uuid.UUID(value)
    return TIMES[value] if column.kind == "time" else value


def _write_file(
    maker: _Maker,
    spec: PartitionSpec,
    partition: tuple[Any, ...],
    rows: list[Row],
    mapped: bool,
    lacking: frozenset[str],
    name: str,
) -> _Written:
    """Writes rows in a random way that Iceberg allows for the table."""
    rng, made = maker.rng, maker.made
    identity = {
        each.source_id: value
        for each, value in zip(spec.fields, partition, strict=True)
        if _is_identity(each)
    }
    computed = {
        each.source_id
        for each in spec.fields
        if not isinstance(each.transform, (IdentityTransform, VoidTransform))
    }
    kept = frozenset(computed | ({1} if computed & {maker.arrival.field_id} else set()))
    forgotten = {column.field_id for column in _all(made.columns) if column.name in lacking}
    with_ids = not mapped or bool(kept & forgotten) or maker.chance(0.5)
    int96 = made.ticks == 10**6 and made.unit is None and maker.chance(0.15)
    far = any(abs(_arrival_of(row, made) or 0) // made.ticks > 2 * 10**9 for row in rows)
    wishes = Wishes(with_ids, int96, frozenset(identity), kept, far)
    physical: list[Stored | None] = []
    for column in made.columns:
        absent = (
            0.5
            if column.field_id in identity
            else 0.2
            if column.name not in (made.kafka or ())
            else 0.02
        )
        gone = column.field_id not in kept and maker.chance(absent)
        physical.append(None if gone else stored(column, rng, wishes))
    file_columns = physical if with_ids else [without(each, lacking) for each in physical]
    path = f"{maker.table.location()}/data/{name}"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    arrays, fields = [], []
    for column, to in zip(made.columns, physical, strict=True):
        if to is not None:
            fields.append(to.field)
            arrays.append(
                pa.array([to.store(row[column.name], rng) for row in rows], to.field.type)
            )
    if all(each is None for each in file_columns) or maker.chance(0.2):
        fields.append(
            pa.field(
                "of nobody", pa.int32(), metadata={"PARQUET:field_id": "900"} if with_ids else None
            )
        )
        arrays.append(pa.array([7] * len(rows), pa.int32()))
    statistics = maker.chance(0.85)
    schema = pa.schema(fields)
    group = rng.choice([len(rows), 2, 5])
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=schema),
        path,
        row_group_size=group,
        write_statistics=statistics,
        use_deprecated_int96_timestamps=int96,
        store_schema=maker.chance(0.8),
    )
    given = [_given(made.columns, file_columns, row, identity) for row in rows]
    found = _found(made, file_columns)
    entry = _entry(maker, path, partition, rows, given, found, statistics and not int96)
    made.unknowable |= _is_unknowable(
        maker, spec, partition, found, statistics and not int96, entry
    )
    file_rows = [_file_row(made, path, position, values) for position, values in enumerate(given)]
    return _Written(entry, spec, file_rows)


def _is_identity(part: PartitionField) -> bool:
    return isinstance(part.transform, IdentityTransform)


def _found(made: RandomTable, file_columns: Sequence[Stored | None]) -> Stored | None:
    """The arrival column in a file."""
    for column, to in zip(made.columns, file_columns, strict=True):
        if column.name == made.arrival[0] and to is not None:
            if len(made.arrival) == 1:
                return to
            return next(
                (
                    part
                    for part in to.parts
                    if part is not None and part.column.name == made.arrival[1]
                ),
                None,
            )
    return None


def _given(
    columns: Sequence[Column],
    file_columns: Sequence[Stored | None],
    row: Row,
    identity: dict[int, Any],
) -> Row:
    """What an application is given for a row in a file."""
    given = {}
    for column, to in zip(columns, file_columns, strict=True):
        if to is not None:
            given[column.name] = _with_identity(column, to, row[column.name], identity)
        elif column.field_id in identity:
            given[column.name] = row[column.name]
        else:
            given[column.name] = _initial_ticks(column)
    return given


def _with_identity(column: Column, to: Stored, value: Any, identity: dict[int, Any]) -> Any:
    """Also fields of a struct may have the value of a partition, where the struct itself is
    there.
    """
    given = to.given(value)
    if column.kind == "struct" and given is not None:
        for part, stored_part in zip(column.parts, to.parts, strict=True):
            if stored_part is None:
                given[part.name] = (
                    value[part.name] if part.field_id in identity else _initial_ticks(part)
                )
    return given


def _initial_ticks(column: Column) -> Any:
    if isinstance(column.initial, datetime):
        delta = column.initial.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return (delta.days * 86_400 + delta.seconds) * 10**6 + delta.microseconds
    return column.initial


def _file_row(made: RandomTable, path: str, position: int, values: Row) -> FileRow:
    kafka = (values[made.kafka[0]], values[made.kafka[1]]) if made.kafka else (None, None)
    return FileRow(path, position, values, _arrival_of(values, made), kafka, deleted=False)


def _entry(
    maker: _Maker,
    path: str,
    partition: tuple[Any, ...],
    rows: list[Row],
    given: list[Row],
    found: Stored | None,
    known: bool,
) -> DataFile:
    """The entry of a data file in its manifest, with metrics as some writer or other gives them."""
    rng, made = maker.rng, maker.made
    values: dict[str, Any] = {}
    bounds: tuple[dict[int, bytes], dict[int, bytes], dict[int, int]] = ({}, {}, {})
    arrivals = [_arrival_of(row, made) for row in given]
    present = [value for value in arrivals if value is not None]
    if found is not None and (maker.chance(0.7) if known else not maker.sloppy):
        size = "<i" if found.arrow == pa.int32() else "<q"
        if present:
            bounds[0][maker.arrival.field_id] = struct.pack(size, min(present))
            bounds[1][maker.arrival.field_id] = struct.pack(size, max(present))
        if maker.chance(0.8):
            bounds[2][maker.arrival.field_id] = len(arrivals) - len(present)
    for column in made.columns:
        if column.kind == "text" and column.initial is None and maker.chance(0.5):
            texts = [row[column.name].encode() for row in given if row[column.name] is not None]
            if texts:
                bounds[0][column.field_id], bounds[1][column.field_id] = min(texts), max(texts)
            bounds[2][column.field_id] = len(given) - len(texts)
    if any(bounds):
        values |= {
            "lower_bounds": bounds[0],
            "upper_bounds": bounds[1],
            "null_value_counts": bounds[2],
        }
        values["value_counts"] = dict.fromkeys(bounds[2], len(given))
    metadata = pq.read_metadata(path)
    starts = [metadata.row_group(number).column(0) for number in range(metadata.num_row_groups)]
    starts_at = [column.dictionary_page_offset or column.data_page_offset for column in starts]
    values["split_offsets"] = rng.choice([None, starts_at, starts_at, [4, 10**9]])
    return data_file(
        maker.version,
        file_path=path,
        partition=Record(*partition),
        record_count=len(rows),
        file_size_in_bytes=Path(path).stat().st_size,
        **values,
    )


def _is_unknowable(
    maker: _Maker,
    spec: PartitionSpec,
    partition: tuple[Any, ...],
    found: Stored | None,
    known: bool,
    entry: DataFile,
) -> bool:
    if found is None or known or (entry.lower_bounds or {}).get(maker.arrival.field_id):
        return False
    useful = (IdentityTransform, HourTransform, DayTransform, MonthTransform, YearTransform)
    of_arrival = [
        value
        for each, value in zip(spec.fields, partition, strict=True)
        if each.source_id == maker.arrival.field_id and isinstance(each.transform, useful)
    ]
    return not any(value is not None for value in of_arrival)


def _delete_rows(
    maker: _Maker, written: list[_Written]
) -> list[tuple[PartitionSpec, list[DataFile]]]:
    """Deletes some rows, by deletion vectors or files of positions, and says so in the files'
    rows.
    """
    rng = maker.rng
    found: list[tuple[PartitionSpec, list[DataFile]]] = []
    for number, each in enumerate(written):
        if not maker.chance(0.4):
            continue
        chosen = sorted(rng.sample(range(len(each.rows)), rng.randint(1, len(each.rows))))
        path = Path(f"{maker.table.location()}/data/delete-{number}")
        name = each.entry.file_path
        entry: dict[str, Any] = {
            "content": DataFileContent.POSITION_DELETES,
            "partition": each.entry.partition,
        }
        if maker.version == 3 and maker.chance(0.7):
            deletion_vectors(path, {name: chosen})
            entry |= {"file_format": FileFormat.PUFFIN, "referenced_data_file": name}
        else:
            position_deletes(path, [(name, position) for position in chosen])
            if maker.chance(0.5):
                bounds = {2147483546: name.encode()}
                entry |= {"lower_bounds": bounds, "upper_bounds": bounds}
        made = data_file(
            maker.version,
            file_path=str(path),
            record_count=len(chosen),
            file_size_in_bytes=path.stat().st_size,
            **entry,
        )
        found.append((each.spec, [made]))
        deleted = set(chosen)
        each.rows[:] = [
            FileRow(
                row.path, row.position, row.values, row.arrival, row.kafka, row.position in deleted
            )
            for row in each.rows
        ]
    return found
