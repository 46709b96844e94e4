"""Columns of random tables: values as plain Python, and the many ways in which files have them.

Moments are whole numbers since 1970 in the unit of their column; everything else is what an
application is given.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

UUIDS = [uuid.UUID(int=number << 100 | number) for number in range(4)]
TIMES = {"00:00:00.000000": 0, "00:00:00.000001": 1, "23:59:59.999999": 86_399_999_999}
EPOCH_DAY = 20_500  # 2026-02-16


@dataclass(frozen=True)
class Moment:
    """How a file has a column of timestamps: its Arrow type, and how many of the column's ticks one
    of its values is.
    """

    arrow: pa.DataType
    ticks: int = 1
    finer: int = 1
    """How many values of the file one tick of the column has room for."""
    int96: bool = False


@dataclass(frozen=True)
class Kind:
    """A type of a table, the values of it that are drawn, and the types a file may have for it."""

    iceberg: IcebergType
    draw: Callable[[Random], Any]
    arrows: tuple[pa.DataType, ...] = ()
    store: Callable[[Any], Any] = lambda value: value
    moments: tuple[Moment, ...] = ()


def _timestamps(unit: str) -> tuple[Moment, ...]:
    zones = ("UTC", None, "Europe/Paris")
    exact = tuple(Moment(pa.timestamp(unit, zone)) for zone in zones)
    if unit == "ns":
        return exact
    finer = tuple(Moment(pa.timestamp("ns", zone), finer=1000) for zone in zones)
    coarser = tuple(Moment(pa.timestamp("ms", zone), ticks=1000) for zone in zones)
    return (
        *exact,
        *finer,
        *coarser,
        Moment(pa.timestamp("us"), int96=True),
        Moment(pa.timestamp("us", "UTC"), int96=True),
    )


def number(rng: Random) -> int:
    return rng.choice([-3, -1, 0, 1, 2, 5, 127])


KINDS: Mapping[str, Kind] = {
    "text": Kind(
        StringType(),
        lambda rng: rng.choice(["eu", "us", "it's", "", "ap-1", "é"]),
        (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.binary()),
    ),
    "whole": Kind(LongType(), number, (pa.int64(), pa.int32(), pa.int8())),
    "counter": Kind(LongType(), number, (pa.int64(), pa.int32())),
    "int": Kind(IntegerType(), number, (pa.int32(), pa.int16())),
    "real": Kind(
        DoubleType(), lambda rng: rng.choice([-1.5, 0.0, 0.25, 8.0]), (pa.float64(), pa.float32())
    ),
    "price": Kind(
        DecimalType(18, 2),
        lambda rng: Decimal(rng.choice(["-1.00", "0.01", "9.99"])),
        (pa.decimal128(18, 2), pa.decimal128(9, 2)),
    ),
    "uuid": Kind(
        UUIDType(),
        lambda rng: str(rng.choice(UUIDS)),
        (pa.uuid(), pa.binary(16)),
        lambda text: uuid.UUID(text).bytes,
    ),
    "date": Kind(DateType(), lambda rng: EPOCH_DAY + rng.randrange(3), (pa.date32(),)),
    "time": Kind(
        TimeType(),
        lambda rng: rng.choice(list(TIMES)),
        (pa.time64("us"),),
        lambda text: TIMES[text],
    ),
    "seen": Kind(
        TimestamptzType(),
        lambda rng: rng.choice([-1, 0, 1_772_323_200_000_001, 10**12]),
        moments=_timestamps("us"),
    ),
}
ARRIVALS: Mapping[str, tuple[IcebergType, str | None, int, tuple[Moment, ...]]] = {
    "timestamp": (TimestampType(), None, 10**6, _timestamps("us")),
    "timestamptz": (TimestamptzType(), None, 10**6, _timestamps("us")),
    "timestamp_ns": (TimestampNanoType(), None, 10**9, _timestamps("ns")),
    "timestamptz_ns": (TimestamptzNanoType(), None, 10**9, _timestamps("ns")),
    "seconds": (LongType(), "s", 1, (Moment(pa.int64()), Moment(pa.int32()))),
    "milliseconds": (LongType(), "ms", 10**3, (Moment(pa.int64()),)),
    "microseconds": (LongType(), "us", 10**6, (Moment(pa.int64()),)),
    "nanoseconds": (LongType(), "ns", 10**9, (Moment(pa.int64()),)),
}
"""Iceberg type, declared unit, ticks in a second, and what files may have."""


@dataclass(frozen=True)
class Column:
    """A column of a table, or a field of one. ``kind`` names one of :data:`KINDS`, or says what is
    nested.
    """

    field_id: int
    name: str
    kind: str
    parts: tuple["Column", ...] = ()
    initial: Any = None
    iceberg: IcebergType | None = None
    """For the arrival column."""
    moments: tuple[Moment, ...] = ()

    @property
    def type(self) -> IcebergType:
        if self.iceberg is not None:
            return self.iceberg
        match self.kind:
            case "struct":
                return StructType(*(part.nested_field for part in self.parts))
            case "list":
                element = self.parts[0]
                return ListType(element.field_id, element.type, element_required=False)
            case "map":
                key, value = self.parts
                return MapType(
                    key.field_id, key.type, value.field_id, value.type, value_required=False
                )
        return KINDS[self.kind].iceberg

    @property
    def nested_field(self) -> NestedField:
        return NestedField(
            self.field_id, self.name, self.type, required=False, initial_default=self.initial
        )

    def draw(self, rng: Random) -> Any:
        if rng.random() < 0.2:
            return None
        match self.kind:
            case "struct":
                return {part.name: part.draw(rng) for part in self.parts}
            case "list":
                return [self.parts[0].draw(rng) for _ in range(rng.choice([0, 0, 1, 3]))]
            case "map":
                keys = rng.sample(["a", "b", "c"], rng.choice([0, 1, 2]))
                return [(key, self.parts[1].draw(rng)) for key in keys]
        return KINDS[self.kind].draw(rng) if self.kind in KINDS else None


@dataclass(frozen=True)
class Stored:
    """How one file has a column."""

    column: Column
    name: str
    arrow: pa.DataType
    """Of a leaf, or of a list or map whatever is in it."""
    parts: tuple["Stored | None", ...] = ()
    moment: Moment | None = None
    with_id: bool = True

    @property
    def field(self) -> pa.Field:
        kind = self.arrow
        match self.column.kind:
            case "struct":
                kind = pa.struct([part.field for part in self.parts if part is not None])
            case "list":
                kind = pa.list_(self.parts[0].field.with_name("element"))  # type: ignore[union-attr]
            case "map":
                kind = pa.map_(self.parts[0].field.with_nullable(False), self.parts[1].field)  # type: ignore[union-attr]
        metadata = {"PARQUET:field_id": str(self.column.field_id)} if self.with_id else None
        return pa.field(self.name, kind, metadata=metadata)

    def store(self, value: Any, rng: Random) -> Any:
        """A value as PyArrow takes it for the file's type."""
        if value is None:
            return None
        match self.column.kind:
            case "struct":
                pairs = zip(self.column.parts, self.parts, strict=True)
                return {
                    to.name: to.store(value[part.name], rng) for part, to in pairs if to is not None
                }
            case "list":
                return [self.parts[0].store(each, rng) for each in value]  # type: ignore[union-attr]
            case "map":
                return [(key, self.parts[1].store(each, rng)) for key, each in value]  # type: ignore[union-attr]
        if self.moment is not None:
            return value // self.moment.ticks * self.moment.finer + rng.randrange(self.moment.finer)
        return KINDS[self.column.kind].store(value) if self.column.kind in KINDS else value

    def given(self, value: Any) -> Any:
        """What an application is given for a value in this file."""
        if value is None:
            return None
        match self.column.kind:
            case "struct":
                pairs = zip(self.column.parts, self.parts, strict=True)
                return {
                    part.name: part.initial if to is None else to.given(value[part.name])
                    for part, to in pairs
                }
            case "list":
                return [self.parts[0].given(each) for each in value]  # type: ignore[union-attr]
            case "map":
                return [(key, self.parts[1].given(each)) for key, each in value]  # type: ignore[union-attr]
        if self.moment is not None:
            return value // self.moment.ticks * self.moment.ticks
        return value


@dataclass(frozen=True)
class Wishes:
    """What the columns of a file have to be like."""

    with_ids: bool
    int96: bool
    """All timestamps are INT96."""
    exact: frozenset[int]
    """Moments that a partition repeats, by field id: no coarser than in the table."""
    kept: frozenset[int]
    """Fields that are there."""
    far: bool
    """There are moments that nanoseconds and 32 bits do not reach."""

    def allow(self, column: Column, moment: Moment) -> bool:
        if pa.types.is_timestamp(moment.arrow) and moment.int96 != self.int96:
            return False
        if (
            self.far
            and column.iceberg is not None
            and (moment.finer > 1 or moment.arrow == pa.int32())
        ):
            return False
        return moment.ticks == 1 or column.field_id not in self.exact


def stored(
    column: Column, rng: Random, wishes: Wishes, *, within: bool = False, below: bool = False
) -> Stored:
    """A random way for a file to have a column, or an element, key or value ``within`` one, or
    something ``below`` one.
    """
    with_id = wishes.with_ids
    moments = column.moments or (KINDS[column.kind].moments if column.kind in KINDS else ())
    # in a file without ids a name is what the mapping says; within lists and maps names are
    # Parquet's own
    name = column.name if within else rng.choice(_names(column, with_id=with_id))
    if moments:
        moment = rng.choice([each for each in moments if wishes.allow(column, each)])
        return Stored(column, name, moment.arrow, (), moment, with_id)
    parts: tuple[Stored | None, ...] = ()
    if column.parts:
        nested = column.kind != "struct"
        made = [stored(part, rng, wishes, within=nested, below=True) for part in column.parts]
        there = [nested or number == 0 or rng.random() < 0.7 for number in range(len(made))]
        parts = tuple(
            to if part.field_id in wishes.kept or here else None
            for part, to, here in zip(column.parts, made, there, strict=True)
        )
    arrows = KINDS[column.kind].arrows if column.kind in KINDS else (pa.null(),)
    if within or below:  # PyArrow makes or reads no nested arrays of some others
        arrows = {"text": (pa.string(),), "uuid": (pa.binary(16),)}.get(column.kind, arrows)
    return Stored(column, name, rng.choice(arrows), parts, None, with_id)


def _names(column: Column, *, with_id: bool) -> list[str]:
    return (
        [column.name, f"old.{column.name}", f"{column.name}_x2E"]
        if with_id
        else [column.name, f"was-{column.name}"]
    )


def without(to: Stored | None, names: frozenset[str]) -> Stored | None:
    """What is left of a column in a file without ids, of which the mapping lacks some names."""
    if to is None or to.column.name in names:
        return None
    return replace(to, parts=tuple(without(part, names) for part in to.parts))


def mapping_of(
    columns: tuple[Column, ...], lacking: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """A name mapping for files without ids, without the fields that it lacks."""
    return [
        {
            "field-id": column.field_id,
            "names": sorted({column.name, f"was-{column.name}"}),
            "fields": mapping_of(column.parts, lacking),
        }
        for column in columns
        if column.name not in lacking
    ]
