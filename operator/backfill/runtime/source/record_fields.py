"""The row of a table as the fields of a JSON record: which column each field is written from, in
which type and text, so that the application decodes what it decodes in production.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.field_types import bare
from backfill.api.source import KafkaValue
from backfill.runtime.catalyst import Catalyst, quoted
from backfill.runtime.source.timestamp_columns import find_column, microseconds
from backfill.runtime.spark_versions import HAS_VARIANT, VariantType, parsed_json

ITEM: Final = "[]"
"""In the path of a field: any element of a list."""
CONFLUENT_BYTES: Final = 5
"""Length of the prefix of values by Confluent's serializers."""
TEXT: Final = "{}"
"""In the path of a field: the JSON text in a string, which is decoded once more."""
_FRACTIONS = FloatType | DoubleType | DecimalType
_MOMENTS = TimestampType | TimestampNTZType
_NESTED = StructType | ArrayType | MapType
_DAY_US = 86_400_000_000
_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_IN_UTC = {"UTC", "Z", "GMT", "Etc/UTC", "Etc/GMT", "+00:00", "UTC+00:00", "Zulu", "Universal"}
_QUOTED = re.compile(r"'[^']*'")
_ZONE_LETTERS = set("VzOXxZ")
_EXAMPLE = "2021-07-11T00:05:00.123456"
"""A time in the pattern ``_MICROSECONDS``."""
_MOST_SHOWN = 20
_FINER = {"s": 1_000_000, "ms": 1_000}
"""Microseconds in units of which numbers may have fractions."""
_MOST_TIMES = 4
"""Of times that are warned of, in a status that is bounded."""
_LONGEST_TYPE = 60


@dataclass(frozen=True)
class DecodedField:
    """A field that a query decodes from the records of a source, and uses."""

    path: tuple[str, ...]
    """Names of the fields from the record on, with ``ITEM`` and ``TEXT``."""
    kind: DataType
    """The type that it is decoded as."""
    patterns: tuple[tuple[str, str], ...] = ()
    """The patterns by which text is parsed, by the type that it becomes: ``timestamp``,
    ``timestamp_ntz`` or ``date``; ``string`` if the application parses the string itself.
    """
    zone: str = "UTC"
    """The time zone in which text without a zone is parsed."""
    zone_is_given: bool = False
    """Whether that zone is set where the application decodes, and not in the session."""
    number: NumericType | None = None
    """The type of the number that the application makes of the string; None if it makes none."""
    by_value: bool = False
    """Whether any text of the value is as good: the application makes a time of it, or looks
    whether there is one.
    """
    form: str = ""
    """What the whole record is decoded as, if not as JSON."""
    skipped: int = 0
    """Number of characters or bytes at the start of the record that the application leaves out."""
    among: tuple[str, ...] = ()
    """The sources whose records are decoded together, if there are several: each may lack fields
    of others.
    """

    @property
    def uses_text(self) -> bool:
        """Whether the application uses a string, or one in a value without a schema, as it is."""
        return not (self.by_value or self.number or "string" in dict(self.patterns))


@dataclass(frozen=True)
class Mismatch:
    """A field that no column gives as the application decodes it."""

    path: tuple[str, ...]
    kind: DataType
    why: str
    setting: str = ""
    """What of ``live.kafka.value`` helps, if that is known."""
    column: str | None = None
    """The column that the field may be written from."""
    among: tuple[str, ...] = ()
    """The sources of which another one may have the field that is missing here."""

    @property
    def name(self) -> str:
        """The field, as in the spec."""
        return _name(self.path)

    @property
    def can_be_set(self) -> bool:
        """Whether it is known what in the spec helps."""
        return self.column is not None or bool(self.setting)


@dataclass(frozen=True)
class _AsText:
    pattern: str
    zone: str


@dataclass(frozen=True)
class _AsNumber:
    unit: str
    kind: DataType | None = None
    """The type that it is decoded as: of whole numbers, or with fractions of the unit. None if that
    is unknown: then a whole number.
    """


@dataclass(frozen=True)
class _AsType:
    kind: DataType


@dataclass
class _Place:
    """A field of the record."""

    kind: DataType | None
    """Its type in the table; None for an object that only groups fields."""
    column: tuple[str, ...] | str = ()
    """The path to its column; or its name in the struct that it is in."""
    chosen: bool = False
    """Whether the spec says that it is written from this column."""
    fields: "dict[str, _Place] | None" = None
    element: "_Place | None" = None
    how: _AsText | _AsNumber | _AsType | None = None
    as_text: bool = False
    """Whether the application uses the text of the value itself."""
    exact: set[str] = field(default_factory=set)
    """Its fields that are decoded under exactly their names."""

    def opened(self) -> "dict[str, _Place] | None":
        """Its fields; None if it has none that are known."""
        if self.fields is None and isinstance(self.kind, StructType):
            self.fields = {each.name: _Place(each.dataType, each.name) for each in self.kind}
        return self.fields

    def item(self) -> "_Place | None":
        """An element of it; None if it is no list."""
        if self.element is None and isinstance(self.kind, ArrayType):
            self.element = _Place(self.kind.elementType)
        return self.element


class RecordFields:
    """The fields of a source's records: first as the spec says, then as a query decodes them."""

    def __init__(self, columns: StructType, value: KafkaValue):
        """For the columns of the table.

        Raises:
            InvalidPlanInput: ``fields`` names a column that does not exist.
        """
        self._columns = columns
        self._value = value
        self._decoded: Sequence[DecodedField] = ()
        self._record = _Place(None, fields={})
        self._in_function = False
        self.adapted = False
        """Whether fields are written otherwise than by the spec alone."""
        moved = {name: self._moved(name, column) for name, column in value.fields.items()}
        taken = {place.column for place in moved.values()}
        row = self._object(value.envelope.split(".") if value.envelope else [])
        for each in columns:
            if (each.name,) not in taken:
                row[each.name] = _Place(each.dataType, (each.name,))
        for name, place in moved.items():
            *above, last = name.split(".")
            self._object(above)[last] = place

    def _moved(self, name: str, column: str) -> _Place:
        found = find_column(self._columns, column)
        if found is None:
            raise InvalidPlanInput(
                Problem(
                    "spec.sources",
                    f"live.kafka.value.fields: {name} is to be written from the column {column},"
                    f" which does not exist; the columns are {', '.join(self._columns.names)}",
                    "correct the column's name",
                )
            )
        return _Place(found[1], tuple(found[0]), chosen=True)

    def _object(self, path: Sequence[str]) -> dict[str, _Place]:
        place = self._record
        for name in path:
            fields = place.opened()
            assert fields is not None
            if name not in fields or fields[name].opened() is None:
                fields[name] = _Place(None, fields={})
            place = fields[name]
        fields = place.opened()
        assert fields is not None
        return fields

    # What is decoded

    def fit(self, decoded: Sequence[DecodedField], *, in_function: bool = False) -> list[Mismatch]:
        """Writes fields as a query decodes them, where only one way is right. What a function of
        ``foreachBatch`` decodes is seen too late for that: records are as the spec says.

        Returns:
            The fields that no column gives, or only in a way that the spec has to choose.
        """
        self._decoded, self._in_function = decoded, in_function
        self.adapted = self._value.timestamp_unit is not None
        for each in decoded:
            self._note_exact(each)
        found = {
            (mismatch.name, mismatch.why): mismatch
            for each in decoded
            for mismatch in (
                _of_another_form(each, self._value)
                or self._fit(self._record, (), each.path, each.kind, each)
            )
        }
        return [each for each in found.values() if not self._is_absent(each)]

    def _is_absent(self, field: Mismatch) -> bool:
        """Whether the spec says that the field, or one that it is in, is null."""
        return any(
            _name(field.path[:length]) in self._value.absent
            for length in range(1, len(field.path) + 1)
        )

    def _note_exact(self, decoded: DecodedField) -> None:
        for path, _ in _leaves(decoded.path, decoded.kind):
            place: _Place | None = self._record
            for name in path:
                assert place is not None
                if name == ITEM:
                    place = place.item()
                elif name != TEXT:
                    place.exact.add(name)
                    place = (place.opened() or {}).get(name)
                if place is None:
                    break

    def _fit(
        self,
        place: _Place,
        done: tuple[str, ...],
        path: Sequence[str],
        kind: DataType,
        decoded: DecodedField,
    ) -> Iterator[Mismatch]:
        if not path:
            yield from self._compare(place, done, kind, decoded)
            return
        if isinstance(place.kind, MapType):
            return  # which keys there are is in the rows
        name, rest = path[0], path[1:]
        here = (*done, name)
        if name == TEXT:
            if not isinstance(place.kind, StringType):  # else it is the text of the table
                yield from self._fit(place, here, rest, kind, decoded)
        elif name == ITEM:
            element = place.item()
            if element is not None:
                yield from self._fit(element, here, rest, kind, decoded)
            elif _is_decoded(done):  # an object is a list of one there
                yield from self._fit(place, done, rest, kind, decoded)
            else:
                yield from self._another_type(place, done, ArrayType(kind), decoded)
        elif place.opened() is None:
            yield from self._another_type(place, done, StructType().add(name, kind), decoded)
        else:
            below = self._named(place, name, path[-1])
            if isinstance(below, _Place):
                yield from self._fit(below, here, rest, kind, decoded)
            else:
                missing = Mismatch((*done, *path), kind, *below)
                yield replace(missing, among=decoded.among)

    def _named(self, place: _Place, name: str, word: str) -> "_Place | tuple[str, str, str | None]":
        """A field by its name, under which it is written from then on; else why it is missing, and
        the column that comes near to a word.
        """
        fields = place.opened()
        assert fields is not None
        if name in fields:
            return fields[name]
        same = [each for each in fields if each.lower() == name.lower()]
        if len(same) == 1 and self._in_function:
            column = fields[same[0]].column
            named = ".".join(column) if isinstance(column, tuple) else None
            return f"a function decodes it, and its column is {same[0]}", "", named
        if len(same) == 1 and same[0] not in place.exact:
            renamed = {name if each == same[0] else each: at for each, at in fields.items()}
            place.fields, place.exact = renamed, {*place.exact, name}
            self.adapted = True
            return renamed[name]
        if len(same) == 1:
            return f"it is decoded as {same[0]} as well", "", None
        if same:
            return f"several columns or fields differ only in case: {', '.join(same)}", "", None
        if place is not self._record and place.kind is not None:
            return f"its column has no such field, but {_listed(fields)}", "", None
        lower = {each.lower(): each for each in self._columns.names}
        alike = {bare(each): each for each in lower}
        near = [alike[bare(word)]] if bare(word) in alike else []
        near += [
            each for each in get_close_matches(word.lower(), lower, 3, 0.7) if each not in near
        ]
        names = [lower[each] for each in near]
        why = (
            f"no such column, {'similar: ' + ', '.join(names) if names else 'and none is similar'}"
        )
        return why, "", names[0] if names else None

    def _compare(
        self, place: _Place, done: tuple[str, ...], kind: DataType, decoded: DecodedField
    ) -> Iterator[Mismatch]:
        """How the value at a place is decoded as a type."""
        have = place.kind
        is_object = have is None or isinstance(have, StructType)
        if isinstance(kind, StringType | VariantType) and decoded.uses_text:
            for time in _times(place):
                time.place.as_text = True
        if _gives_any(have, kind):
            return
        if isinstance(kind, StructType) and is_object:
            for each in kind:
                yield from self._fit(place, done, (each.name,), each.dataType, decoded)
        elif isinstance(kind, ArrayType) and isinstance(have, ArrayType):
            element = place.item()
            assert element is not None
            yield from self._fit(element, (*done, ITEM), (), kind.elementType, decoded)
        elif isinstance(kind, ArrayType) and is_object and _is_decoded(done):
            yield from self._compare(place, done, kind.elementType, decoded)
        elif isinstance(kind, MapType) and is_object:
            for name in list(place.opened() or {}):
                yield from self._fit(place, done, (name,), kind.valueType, decoded)
        elif isinstance(have, _MOMENTS | DateType):
            yield from self._time(place, done, kind, decoded)
        elif (
            have is None
            or not _as_it_is(have, kind)
            or (isinstance(have, NumericType) and not place.chosen and _is_time(kind, decoded))
        ):
            yield from self._another_type(place, done, kind, decoded)

    def _another_type(
        self, place: _Place, done: tuple[str, ...], kind: DataType, decoded: DecodedField
    ) -> Iterator[Mismatch]:
        """What is decoded as a type that the column's own text does not give."""
        converted = place.kind is not None and _converts(place.kind, kind)
        have = "struct" if place.kind is None else place.kind.simpleString()
        if converted and self._in_function:
            why = (
                f"its column has the type {have}, which is converted only for what is decoded"
                " before foreachBatch"
            )
            yield Mismatch(done, kind, why, f"absent: [{_name(done)}], if it may be null")
            return
        if converted and place.chosen:
            how = _AsType(VariantType() if isinstance(kind, _NESTED) else kind)
            yield from self._write(place, done, kind, how)
            return
        if isinstance(place.kind, IntegralType) and isinstance(kind, TimestampType):
            have += ", which is decoded as seconds"
        named = isinstance(place.column, tuple) and ITEM not in done and TEXT not in done
        column = ".".join(place.column) if converted and named else None
        yield Mismatch(done, kind, f"its column has the type {have}", "", column)

    def _time(
        self, place: _Place, done: tuple[str, ...], kind: DataType, decoded: DecodedField
    ) -> Iterator[Mismatch]:
        have, value = place.kind, self._value
        assert have is not None
        number = kind if isinstance(kind, NumericType) else decoded.number
        if number is not None:
            if isinstance(have, DateType):
                yield from self._another_type(place, done, kind, decoded)
            elif value.timestamp_unit is None:
                why = f"its column has the type {have.simpleString()}"
                unit = "timestampUnit: ms (or s, us, ns)"
                yield Mismatch(done, kind, why, unit)
            else:
                yield from self._write(place, done, kind, _AsNumber(value.timestamp_unit, number))
            return
        if not isinstance(kind, StringType | DateType | _MOMENTS):
            yield from self._another_type(place, done, kind, decoded)
            return
        if self._in_function and isinstance(self._how(have), _AsNumber):
            why = "a function decodes it, but timestampUnit makes it a number in records"
            yield Mismatch(done, kind, why, "timestampFormat instead of timestampUnit")
            return
        pattern = dict(decoded.patterns).get(kind.typeName())
        if value.timestamp_format is not None and isinstance(have, _MOMENTS):
            return  # as the spec says
        if isinstance(kind, TimestampNTZType) and isinstance(have, TimestampType):
            pattern = pattern or _MICROSECONDS  # text with a zone would be refused
        if pattern is None:
            return
        zone = "UTC"
        if isinstance(have, TimestampType):
            given = value.time_zone or (decoded.zone if decoded.zone_is_given else None)
            parsed = not isinstance(kind, TimestampNTZType | DateType)
            if given is None and parsed and not _has_zone(pattern) and decoded.zone not in _IN_UTC:
                why = f"its text has no zone ({pattern}), and the session's is {decoded.zone}"
                yield Mismatch(done, kind, why, "timeZone: UTC, or the zone of production's text")
                return
            zone = given or "UTC"
        yield from self._write(place, done, kind, _AsText(pattern, zone))

    def _write(
        self,
        place: _Place,
        done: tuple[str, ...],
        kind: DataType,
        how: _AsText | _AsNumber | _AsType,
    ) -> Iterator[Mismatch]:
        if self._in_function and isinstance(how, _AsNumber):
            if not isinstance(self._how(place.kind), _AsNumber):
                why = "a function decodes it, but timestampFormat makes it text in records"
                yield Mismatch(done, kind, why, "timestampUnit instead of timestampFormat")
            return
        if self._in_function:
            pattern = how.pattern if isinstance(how, _AsText) else ""
            setting = f"timestampFormat: {pattern}" if pattern else ""
            yield Mismatch(done, kind, "a function decodes it, in another text or type", setting)
            return
        if place.how is not None and place.how != how:
            why = "it is decoded in several ways, which need different text"
            both_text = isinstance(how, _AsText) and isinstance(place.how, _AsText)
            setting = f"timestampFormat: {how.pattern}" if both_text else ""  # type: ignore[union-attr]
            yield Mismatch(done, kind, why, setting)
            return
        place.how = how
        self.adapted = True

    def problem(self, place: int, table: str, topic: str, found: Sequence[Mismatch]) -> Problem:
        """What the user has to decide, for the source at a place in the spec."""
        shown = [f"{each.name} ({_short(each.kind)}): {each.why}" for each in found[:_MOST_SHOWN]]
        if len(found) > _MOST_SHOWN:
            shown.append(f"and {len(found) - _MOST_SHOWN} more")
        settings = []
        value, envelope = self._value, self._envelope()
        if envelope is not None:
            settings.append(f"envelope: {envelope}")
            value = value.model_copy(update={"envelope": envelope})
            found = self._missing(value)
        settings += dict.fromkeys(each.setting for each in found if each.setting)
        missing = {each.name: each.column for each in found if not each.setting}
        if missing:
            pairs = {**missing, **self._displaced(value, missing)}
            listed = ", ".join(f"{name}: {column or 'COLUMN'}" for name, column in pairs.items())
            settings.append(f"fields: {{{listed}}}")
            absent = f"absent: [{', '.join(missing)}]"
            settings.append(f"or, for fields that production's records lack as well, {absent}")
        return Problem(
            f"spec.sources[{place}].live.kafka.value",
            f"the application decodes fields of {topic} that {table} does not give:"
            f" {'; '.join(shown)}",
            f"set {'; '.join(settings)}",
        )

    def _missing(self, value: KafkaValue) -> list[Mismatch]:
        """What is decoded that no column gives, by another description of the record."""
        fields = RecordFields(self._columns, value)
        return fields.fit(self._decoded, in_function=self._in_function)

    def _displaced(
        self, value: KafkaValue, missing: Mapping[str, str | None]
    ) -> dict[str, str | None]:
        """Fields that lack a column once others are written from it, and that column."""
        columns = {name: column for name, column in missing.items() if column is not None}
        moved = value.model_copy(update={"fields": {**value.fields, **columns}})
        known = {each.name for each in self._missing(value)}
        lacking = {each.name: each.column for each in self._missing(moved) if not each.setting}
        return {name: column for name, column in lacking.items() if name not in known}

    def _envelope(self) -> str | None:
        """The object in which the application decodes most of the columns, if that is within the
        record.
        """
        if self._value.envelope is not None:
            return None
        columns = {each.lower() for each in self._columns.names}
        inside = Counter(
            path[:-1]
            for decoded in self._decoded
            for path, _ in _leaves(decoded.path, decoded.kind)
            if len(path) > 1 and path[0].lower() not in columns and path[-1].lower() in columns
            if ITEM not in path
        )
        return _name(inside.most_common(1)[0][0]) if inside else None

    def doubtful_times(self, source: int, topic: str) -> list[str]:
        """Times whose text or number may be another one in production's records, for the source at
        a place in the spec. That is unknown before production's and the result are compared.
        """
        value, text, cut = self._value, [], []
        for time in _times(self._record):
            how = time.place.how or self._how(time.place.kind)
            if isinstance(how, _AsNumber):
                if how.unit == "s" and not isinstance(how.kind, _FRACTIONS):
                    cut.append(f"{_name(time.path)} (column {_name(time.column)})")
            elif time.place.as_text and time.place.how is None and value.timestamp_format is None:
                shown = _shown(time.place.kind, value.time_zone)
                text.append(f"{_name(time.path)} (column {_name(time.column)}, as {shown})")
        setting, found = f"spec.sources[{source}].live.kafka.value", []
        if text:
            found.append(
                f"of {topic}, the application uses the text of times, which production's records"
                f" may have in another form: {_first(text)}; set {setting}.timestampFormat to the"
                " pattern of production's records, and timeZone to their zone"
            )
        if cut:
            found.append(
                f"of {topic}, times are whole seconds, without fractions: {_first(cut)}; if"
                f" production's records count in another unit, set {setting}.timestampUnit"
            )
        return found

    # What is written

    def written(self, spark: SparkSession) -> Column:
        """The record, as a struct of a frame's columns."""
        return self._struct(self._record, None, Catalyst(spark))

    def _struct(self, place: _Place, own: Column | None, catalyst: Catalyst) -> Column:
        """An object of a record, from the columns of a frame or of a struct."""
        fields = place.opened()
        assert fields is not None
        # an expression for each column of a wide table would take minutes to make
        plain = {
            name: at.column
            for name, at in fields.items()
            if own is None
            and isinstance(at.column, tuple)
            and at.kind is not None
            and not self._differs(at)
        }
        parts = (f"{_sql(path)} AS {quoted(name)}" for name, path in plain.items())
        others = {
            name: self._column(at, own, catalyst)
            for name, at in fields.items()
            if name not in plain
        }
        if not plain:
            return F.struct(*(column.alias(name) for name, column in others.items()))
        struct = F.expr(f"struct({', '.join(parts)})")
        for name, column in others.items():
            struct = struct.withField(quoted(name), column)
        return struct

    def _column(self, place: _Place, parent: Column | None, catalyst: Catalyst) -> Column:
        if place.kind is None:
            return self._struct(place, None, catalyst)
        if isinstance(place.column, tuple) and place.column:
            own = F.col(_sql(place.column))
        else:
            assert parent is not None
            own = parent.getField(place.column) if isinstance(place.column, str) else parent
        how = place.how or self._how(place.kind)
        if how is not None:
            return _converted(own, place.kind, how, catalyst)
        if isinstance(place.kind, StructType) and self._differs(place):
            return F.when(own.isNotNull(), self._struct(place, own, catalyst))
        element = place.item()
        if element is not None and self._differs(element):
            return F.transform(own, lambda each: self._column(element, each, catalyst))
        return own

    def _how(self, kind: DataType | None) -> _AsText | _AsNumber | None:
        """How the spec alone writes a type, if not as it is."""
        value = self._value
        if not isinstance(kind, _MOMENTS):
            return None
        zone = (value.time_zone or "UTC") if isinstance(kind, TimestampType) else "UTC"
        if value.timestamp_format is not None:
            return _AsText(value.timestamp_format, zone)
        if value.timestamp_unit is not None and (self._in_function or not self._decoded):
            return _AsNumber(value.timestamp_unit)
        if zone not in _IN_UTC:
            return _AsText(f"{_MICROSECONDS}XXX", zone)
        return None

    def _differs(self, place: _Place) -> bool:
        """Whether a value is written otherwise than as it is."""
        if place.how is not None or self._how(place.kind) is not None:
            return True
        element = place.item()
        if element is not None:
            return self._differs(element)
        return any(
            name != at.column or self._differs(at) for name, at in (place.opened() or {}).items()
        )


@dataclass(frozen=True)
class _Time:
    """A moment in the record."""

    path: tuple[str, ...]
    """The path to its field."""
    column: tuple[str, ...]
    """The path to its column."""
    place: _Place


def _times(
    place: _Place, path: tuple[str, ...] = (), column: tuple[str, ...] = ()
) -> Iterator[_Time]:
    """All moments in a field of the record, except those in maps."""
    if isinstance(place.column, str):
        column = (*column, place.column)
    elif place.column:
        column = place.column
    if isinstance(place.kind, _MOMENTS):
        yield _Time(path, column, place)
    element = place.item()
    if element is not None:
        yield from _times(element, (*path, ITEM), column)
    for name, each in (place.opened() or {}).items():
        yield from _times(each, (*path, name), column)


def _shown(kind: DataType | None, zone: str | None) -> str:
    """An example of how the spec alone writes a moment without a pattern."""
    if isinstance(kind, TimestampNTZType):
        return _EXAMPLE
    if zone is None or zone in _IN_UTC:
        return f"{_EXAMPLE}Z"
    return f"{_EXAMPLE} with the offset of {zone}"


def _first(shown: Sequence[str]) -> str:
    more = len(shown) - _MOST_TIMES
    return ", ".join(shown[:_MOST_TIMES]) + (f" and {more} more" if more > 0 else "")


def _converted(
    own: Column, kind: DataType, how: _AsText | _AsNumber | _AsType, catalyst: Catalyst
) -> Column:
    if isinstance(how, _AsType):
        if isinstance(how.kind, VariantType):  # JSON text, which is written as it is
            return parsed_json(own)
        return catalyst.try_cast(own, how.kind)
    moment = own
    if isinstance(kind, DateType):
        moment = F.timestamp_micros(F.unix_date(own).cast("bigint") * _DAY_US)
    elif isinstance(kind, TimestampNTZType):
        moment = F.timestamp_micros(microseconds(own, kind))
    if isinstance(how, _AsText):
        return catalyst.formatted(moment, how.pattern, how.zone)
    micros = F.unix_micros(moment)
    if isinstance(how.kind, _FRACTIONS) and how.unit in _FINER:
        return (micros / _FINER[how.unit]).cast(how.kind)
    match how.unit:
        case "s":
            return F.unix_seconds(moment)
        case "ms":
            return F.unix_millis(moment)
        case "us":
            return micros
    return micros * 1_000


def _of_another_form(decoded: DecodedField, value: KafkaValue) -> list[Mismatch]:
    """What is decoded of something else than a JSON object with its prefix."""
    unchanged = "format: column with a column that has the unchanged values"
    prefix = CONFLUENT_BYTES if value.framing == "Confluent" else 0
    if decoded.form:
        why = f"it is decoded as {decoded.form}, but live.kafka.value.format is json"
        avro = "format: avro with the schema of the records"
        setting = avro if decoded.form == "Avro" else unchanged
    elif decoded.skipped == prefix:
        return []
    elif not decoded.skipped:
        why = f"the application does not skip the {prefix} bytes of framing: Confluent"
        setting = "framing: Plain without schemaId"
    else:
        count = decoded.skipped
        why = f"the application skips its first {f'{count} bytes' if count > 1 else 'byte'}"
        framing = "framing: Confluent with the schemaId of production"
        setting = framing if count == CONFLUENT_BYTES else unchanged
    return [Mismatch(("value",), decoded.kind, why, setting)]


def _is_decoded(path: tuple[str, ...]) -> bool:
    """Whether a path is to text that is decoded, and not within what is decoded from it."""
    return not path or path[-1] == TEXT


def _gives_any(have: DataType | None, kind: DataType) -> bool:
    """Whether objects and lists are decoded as another type whatever is in them."""
    is_object = have is None or isinstance(have, StructType | MapType)
    return (
        isinstance(kind, VariantType)
        or (isinstance(kind, StringType) and (is_object or isinstance(have, ArrayType)))
        or (isinstance(kind, MapType) and isinstance(have, MapType))
        or (isinstance(kind, StructType) and isinstance(have, MapType))
    )


def _as_it_is(have: DataType, kind: DataType) -> bool:
    """Whether the JSON of a column's type is decoded as another type by its value."""
    if isinstance(kind, StringType):
        return True
    if isinstance(have, StringType):  # the text is the record's
        return isinstance(kind, BinaryType | DecimalType | DateType | _MOMENTS)
    if isinstance(have, IntegralType) or (isinstance(have, DecimalType) and have.scale == 0):
        return isinstance(kind, NumericType | TimestampType)
    if isinstance(have, _FRACTIONS):
        return isinstance(kind, _FRACTIONS)
    return type(have) is type(kind)


def _is_time(kind: DataType, decoded: DecodedField) -> bool:
    """Whether a number would be decoded as a time: as seconds, whatever its unit, or as text."""
    pattern = dict(decoded.patterns).get("string")
    in_text = pattern is not None and not pattern.isalpha()
    return isinstance(kind, TimestampType) or (isinstance(kind, StringType) and in_text)


def _converts(have: DataType, kind: DataType) -> bool:
    """Whether a value can be converted, once somebody says that it is the field's."""
    if isinstance(have, StringType):
        return isinstance(kind, NumericType | BooleanType) or (
            HAS_VARIANT and isinstance(kind, _NESTED)
        )
    return isinstance(have, NumericType | BooleanType) and isinstance(
        kind, NumericType | BooleanType
    )


def _has_zone(pattern: str) -> bool:
    letters = set(_QUOTED.sub("", pattern))
    return "'Z'" in pattern or bool(letters & _ZONE_LETTERS)


def _leaves(path: tuple[str, ...], kind: DataType) -> Iterator[tuple[tuple[str, ...], DataType]]:
    if isinstance(kind, StructType):
        for each in kind:
            yield from _leaves((*path, each.name), each.dataType)
    elif isinstance(kind, ArrayType):
        yield from _leaves((*path, ITEM) if path else path, kind.elementType)
    else:
        yield path, kind


def _sql(path: Sequence[str]) -> str:
    return ".".join(map(quoted, path))


def _name(path: Sequence[str]) -> str:
    return ".".join(name for name in path if name not in {ITEM, TEXT})


def _short(kind: DataType) -> str:
    text = kind.simpleString()
    return text if len(text) <= _LONGEST_TYPE else f"{text[: _LONGEST_TYPE - 1]}…"


def _listed(names: Mapping[str, object]) -> str:
    shown = list(names)[:_MOST_SHOWN]
    return ", ".join(shown) + (", …" if len(names) > len(shown) else "")
