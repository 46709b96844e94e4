"""Which queries drop records that they are given a second time.

A query does if its plan drops duplicates before anything else that depends on several rows, by
values that are the same whenever a record is read. Its state is handed over, so that it knows the
records of history. What is not understood counts as not dropping any.
"""

import json
import logging
from collections.abc import Iterable, Set

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    DataType,
    DateType,
    FractionalType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from backfill.api.source import Source
from backfill.runtime.catalyst import (
    analyzed,
    children_of,
    clock_pattern,
    corrupt_record_column,
    elements,
    id_of,
    kind_of,
    nodes_of,
    type_of,
)
from backfill.runtime.queries.logical_plan import HAND_ON_COLUMNS, event_times
from backfill.runtime.source.clock import is_source, source_of
from backfill.runtime.source.record_columns import TOPIC

_ROW_BY_ROW = HAND_ON_COLUMNS | {"EventTimeWatermark", "Filter"}
_DROPS = {"Deduplicate", "DeduplicateWithinWatermark"}
_HAND_ON_VALUES = {"Alias", "Cast", "Decode", "StringDecode", "Substring"}
"""Expressions of an encoded value that is still to be decoded: as text, or without its prefix."""

_Part = tuple[str, ...] | StructType
"""What is used of a column: the field at a path, of which an empty one is the column itself; or
only what is decoded from it, as these fields.
"""
_Use = tuple[int, _Part]
"""A column by its id, and what is used of it."""

_log = logging.getLogger(__name__)


def sources_read_twice(frame: DataFrame, sources: Iterable[Source]) -> set[str]:
    """Names of those sources whose records a query of this frame is not known to drop if it is
    given them again.
    """
    given = {source.name: source for source in sources}
    if not given:
        return set()
    try:
        return _Plan(given, frame.sparkSession).not_dropped(analyzed(frame))
    except Exception:  # no program fails for a warning
        _log.exception("whether a query drops duplicates could not be determined")
        return set(given)


class _Plan:
    def __init__(self, sources: dict[str, Source], spark: SparkSession):
        self._sources = sources
        self._clock = clock_pattern(spark)
        self._corrupt = corrupt_record_column(spark)

    def not_dropped(self, node: JavaObject) -> set[str]:
        """Names of the sources below a node whose records it may give twice."""
        if is_source(node):
            return {source_of(node)} & self._sources.keys()
        if kind_of(node) in _DROPS and self._recognizes(node):
            return set()
        below = [*children_of(node), *elements(node.subqueries())]
        return set().union(*map(self.not_dropped, below))

    def _recognizes(self, node: JavaObject) -> bool:
        """Whether a node recognizes each record that it is given twice."""
        child, compared = node.child(), [id_of(key) for key in elements(node.keys())]
        if kind_of(node) == "DeduplicateWithinWatermark":  # it forgets them by their time
            compared += [id_of(column) for column, _ in event_times(child)]
        return self._same(child, {(column, ()) for column in compared})

    def _same(self, node: JavaObject, used: Set[_Use]) -> bool:
        """Whether what is used of a node's columns is the same whenever a record is read."""
        kind, children = kind_of(node), children_of(node)
        if is_source(node):
            return True
        if kind == "Project" and _is_of_records(node):
            return self._same_in_records(node, used)
        below: set[_Use] = set()
        match kind:
            case "Project":
                made = {id_of(each): each for each in elements(node.projectList())}
                return (
                    not (_is_of_rows(node) and any(_is_converted(made[each]) for each, _ in used))
                    and all(self._use(made[column], part, below) for column, part in used)
                    and self._same(children[0], below)
                )
            case "Generate":
                output = {id_of(each) for each in elements(node.generatorOutput())}
                below |= {(column, part) for column, part in used if column not in output}
                if len(below) < len(used) and not self._use(node.generator(), (), below):
                    return False
                return self._same(children[0], below)
            case "Union":
                return all(self._same(child, _at(node, child, used)) for child in children)
            case kind if kind in _ROW_BY_ROW:
                return self._same(children[0], used)
        return False

    def _use(self, expression: JavaObject, part: _Part, used: set[_Use]) -> bool:
        """Adds what a part of a value is computed from. False if it may differ each time."""
        if not expression.deterministic() or expression.containsPattern(self._clock):
            return False
        return self._add(expression, part, used)

    def _add(self, expression: JavaObject, part: _Part, used: set[_Use]) -> bool:
        kind, children = kind_of(expression), children_of(expression)
        if kind == "AttributeReference":
            used.add((id_of(expression), part))
            return True
        if kind == "Alias" or (isinstance(part, StructType) and kind in _HAND_ON_VALUES):
            return self._add(children[0], part, used)
        path = () if isinstance(part, StructType) else part  # what is decoded is itself computed
        match kind:
            case "GetStructField":
                name = expression.childSchema().fieldNames()[expression.ordinal()]
                return self._add(children[0], (str(name), *path), used)
            case "FromAvro" | "JsonToStructs":
                fields = self._decoded(expression, path)
                return fields is not None and self._add(children[0], fields, used)
        return all(self._add(child, (), used) for child in children)

    def _decoded(self, expression: JavaObject, path: tuple[str, ...]) -> StructType | None:
        """The fields that are decoded for a part of the result; None where it is not known how."""
        fields = type_of(expression)
        if not isinstance(fields, StructType):
            return None
        fields = _only(fields, path)
        if kind_of(expression) == "JsonToStructs" and (
            not expression.options().isEmpty() or self._corrupt in fields.names
        ):
            return None
        return fields

    def _same_in_records(self, node: JavaObject, used: Set[_Use]) -> bool:
        """Whether what is used of history's records is the same in Kafka's."""
        names = {id_of(each): str(each.name()) for each in elements(node.output())}
        (table,) = (each for each in nodes_of(node) if is_source(each))
        source = self._sources.get(source_of(table))
        if source is None:  # a source whose records are not read twice
            return True
        same = {"key", "topic", "partition", "offset"}
        if source.kafka.timestamp_column is not None:
            same.add("timestamp")
        if source.live.kafka.value.column is not None:
            same.add("value")
        row = StructType.fromJson(json.loads(str(table.schema().json())))
        return all(
            names[column] in same
            or (
                names[column] == "value"
                and isinstance(part, StructType)
                and not source.live.kafka.value.reshapes
                and _is_read_back(row, part)
            )
            for column, part in used
        )


def _is_read_back(written: DataType, read: DataType) -> bool:
    """Whether a program decodes the same value from a row of the table, which history encodes
    again, as from the original record.
    """
    match written, read:
        case StructType(), StructType():
            columns = {each.name: each.dataType for each in written}
            return all(
                each.name in columns and _is_read_back(columns[each.name], each.dataType)
                for each in read
            )
        case ArrayType(), ArrayType():
            return _is_read_back(written.elementType, read.elementType)
        case MapType(), _:
            return False
        case IntegralType(), NumericType():
            return True
        case FractionalType(), FractionalType():
            return True
        case StringType(), TimestampType() | TimestampNTZType() | DateType():
            return True  # the table has the record's own text
        case TimestampNTZType(), TimestampType():
            return True
    return written == read


def _only(fields: StructType, path: tuple[str, ...]) -> StructType:
    """The part of a struct that has the field at a path."""
    if not path:
        return fields
    kind = fields[path[0]].dataType
    inner = _only(kind, path[1:]) if isinstance(kind, StructType) else kind
    return StructType([StructField(path[0], inner)])


def _is_of_records(project: JavaObject) -> bool:
    """Whether a projection gives a table's rows the shape of Kafka's records."""
    return any(each.name() == TOPIC for each in elements(project.child().output())) and not any(
        each.name() == TOPIC for each in elements(project.output())
    )


def _is_of_rows(project: JavaObject) -> bool:
    """Whether a projection is the first one of a table's rows: that of a named source gives them
    the types that the live source declares (:mod:`backfill.runtime.named_sources`).
    """
    node = project.child()
    while kind_of(node) in HAND_ON_COLUMNS:
        node = node.child()
    return is_source(node)


def _is_converted(column: JavaObject) -> bool:
    """Whether a column that a live source declares may have other values in history, where the
    table's column is cast.
    """
    if kind_of(column) != "Alias" or kind_of(column.child()) != "Cast":
        return False
    cast = column.child()
    if kind_of(cast.child()) != "AttributeReference":
        return False
    if str(cast.child().name()).lower() != str(column.name()).lower():
        return False  # computed by the program
    there, declared = type_of(cast.child()), type_of(cast)
    plain = isinstance(there, AtomicType) and isinstance(declared, AtomicType)
    return there != declared and not (plain and _is_read_back(there, declared))


def _at(union: JavaObject, child: JavaObject, used: Set[_Use]) -> set[_Use]:
    """What is used of a union's child, by what is used of the union."""
    pairs = zip(elements(union.output()), elements(child.output()), strict=True)
    return {
        (id_of(mine), part)
        for united, mine in pairs
        for each, part in used
        if id_of(united) == each
    }
