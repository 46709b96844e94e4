"""What the operators of a streaming query keep as state, by its analyzed plan."""

import math
from collections.abc import Iterable, Mapping, Sequence

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from backfill.runtime.batch.look_back import KnownRows, visit_nodes
from backfill.runtime.batch.time_expressions import ColumnKey, all_expressions
from backfill.runtime.batch.time_reach import Unbounded
from backfill.runtime.catalyst import (
    Catalyst,
    analyzed,
    children_of,
    elements,
    id_of,
    kind_of,
    pruned,
)
from backfill.runtime.queries.logical_plan import (
    HAND_ON_COLUMNS,
    STATE_OF_ONE_CHILD,
    event_times,
    is_event_time,
    kept_before_watermark_ms,
    session_window,
)
from backfill.runtime.queries.state_size import Kept
from backfill.runtime.source.clock import is_source

_ENTRY_BYTES = 288
"""Of an entry of Spark's heap store beside its values: two row objects with their arrays, and a
place in the maps of three versions, of which the newest is a copy of the one before."""
_WORD = 8
"""Bytes of a value in a row of Spark's, and of what says which values are null."""
_TEXT_BYTES = 256
"""What a text or a byte string is taken to need."""
_TEXTS = {"binary", "string"}
_OF_ANY_LENGTH = {"array", "map", "variant"}
_ONE_FOR_ONE = HAND_ON_COLUMNS | STATE_OF_ONE_CHILD | {"EventTimeWatermark", "Filter", "Project"}
"""Nodes that give no more rows than they get."""
_OF_LEFT_ROWS = {"LeftAnti", "LeftSemi"}
"""Joins that give no more rows than their left side has."""


def kept_rows(frame: DataFrame, arrival_columns: Mapping[str, str]) -> tuple[Kept, ...] | Unbounded:
    """What the operators of a streaming DataFrame in append mode keep; nothing if it has no state.

    Args:
        frame: reads the backfill's sources.
        arrival_columns: by source its ``timestampColumn``.
    """
    state = _State(frame)
    refused = visit_nodes(frame, state.plan, arrival_columns, state.visit)
    return tuple(state.kept) if refused is None else refused


class _State:
    """Collects what is kept while the nodes of a plan are visited."""

    def __init__(self, frame: DataFrame):
        self._catalyst = Catalyst(frame.sparkSession)
        self.plan = pruned(analyzed(frame), frame.sparkSession)
        self.kept: list[Kept] = []

    def visit(
        self, node: JavaObject, below: Sequence[KnownRows | None], sources: Sequence[str]
    ) -> None:
        """Adds what a node keeps."""
        kind = kind_of(node)
        if kind == "Join":
            left, right = below
            if left is not None and right is not None:
                self._join(node, (left, right), sources)
        elif kind in STATE_OF_ONE_CHILD and below[0] is not None:
            self._one_child(node, kind, below[0], sources)

    def _one_child(
        self, node: JavaObject, kind: str, rows: KnownRows, sources: Sequence[str]
    ) -> None:
        child = node.child()
        columns, value = _columns_of_key(node), 0.0
        window = session_window(node)
        key = _bytes_of(each.dataType() for each in columns)
        choices = [_since(rows, each, window) for each in columns if is_event_time(each)]
        if kind == "Aggregate":
            value = _buffer_bytes(node) + (key if window is not None else 0)
        elif kind == "DeduplicateWithinWatermark":
            value = _WORD
            choices = [_later(_since(rows, each), delay) for each, delay in event_times(child)]
        since = choices[0] if choices else _forever(rows)  # Spark goes by the first one
        self._keep(since, _copies(child), _entry_bytes(key, value), sources)

    def _join(
        self, node: JavaObject, below: tuple[KnownRows, KnownRows], sources: Sequence[str]
    ) -> None:
        found = self._catalyst.equal_keys(node)
        if found is None:  # Spark refuses it
            for rows in below:
                self._keep(_forever(rows), math.inf, math.inf, sources)
            return
        keys, condition = found
        sides = node.left(), node.right()
        for mine, other in ((0, 1), (1, 0)):
            side, rows = sides[mine], below[mine]
            timed = [pair[mine] for pair in keys if any(is_event_time(each) for each in pair)]
            if not timed:
                since = self._by_condition(side, sides[other], rows, condition)
            elif kind_of(timed[0]) == "AttributeReference":
                since = _since(rows, timed[0])
            else:
                since = _forever(rows)
            key = _bytes_of(pair[mine].dataType() for pair in keys)
            row = _bytes_of(each.dataType() for each in elements(side.output()))
            entry = _entry_bytes(key + _WORD, row + _WORD) + _entry_bytes(key, _WORD)
            self._keep(since, _copies(side), entry, sources)

    def _by_condition(
        self, side: JavaObject, other: JavaObject, rows: KnownRows, condition: JavaObject
    ) -> dict[int, float]:
        """How long Spark keeps one side's rows for what may come of the other."""
        kept_ms = kept_before_watermark_ms(side, other, condition, self._catalyst)
        if kept_ms is None:
            return _forever(rows)
        time, _ = event_times(side)[0]
        return _later(_since(rows, time), 1_000.0 * kept_ms)

    def _keep(
        self, since: Mapping[int, float], copies: float, entry: float, sources: Sequence[str]
    ) -> None:
        self.kept += [
            Kept(sources[leaf], max(0.0, since_us), copies, entry)
            for leaf, since_us in sorted(since.items())
        ]


def _columns_of_key(node: JavaObject) -> list[JavaObject]:
    match kind_of(node):
        case "Aggregate":
            return elements(node.groupingExpressions())
        case "Distinct":
            return elements(node.output())
    return elements(node.keys())


def _since(
    rows: KnownRows, column: JavaObject, session: JavaObject | None = None
) -> dict[int, float]:
    """By place where the plan reads a source: how long before an event time of the node's rows that
    of the source's rows may be. Of a window it is the end that counts.
    """
    number = id_of(column)
    if column.dataType().typeName() != "struct":
        return _backs(rows, (number, ()))
    start, end = (number, ("start",)), (number, ("end",))
    if session is None or number != id_of(session):
        return _backs(rows, end)
    return _later(_backs(rows, start), rows.gap(start, end).ahead.us)


def _backs(rows: KnownRows, key: ColumnKey) -> dict[int, float]:
    known = {
        leaf: each.back.us
        for leaf, each in rows.times.get(key, {}).items()
        if not each.back.sessions
    }
    return {leaf: known.get(leaf, math.inf) for leaf in rows.reads}


def _forever(rows: KnownRows) -> dict[int, float]:
    return dict.fromkeys(rows.reads, math.inf)


def _later(since: Mapping[int, float], by_us: float) -> dict[int, float]:
    return {leaf: back_us + by_us for leaf, back_us in since.items()}


def _copies(node: JavaObject) -> float:
    """How many rows a node gives for each row of a source at most; infinite if that is unknown."""
    children = children_of(node)
    if not children or is_source(node):
        return 1.0
    kind, below = kind_of(node), max(_copies(each) for each in children)
    if kind == "Expand":
        return below * float(node.projections().size())
    if kind == "Join":
        return below if node.joinType().toString() in _OF_LEFT_ROWS else math.inf
    return below if kind in _ONE_FOR_ONE or kind == "Union" else math.inf


def _buffer_bytes(aggregate: JavaObject) -> float:
    """The bytes of what an aggregation keeps for a group; infinite if it may keep anything."""
    kinds: list[JavaObject] = []
    for column in elements(aggregate.aggregateExpressions()):
        for each in all_expressions(column):
            if kind_of(each) == "AggregateExpression":
                for attribute in elements(each.aggregateFunction().aggBufferAttributes()):
                    kinds.append(attribute.dataType())
    if any(kind.typeName() == "binary" for kind in kinds):  # an object, such as a list
        return math.inf
    return _bytes_of(kinds)


def _bytes_of(types: Iterable[JavaObject]) -> float:
    """The bytes of values in a row; infinite if there may be any number."""
    return sum(map(_bytes_of_one, types))


def _bytes_of_one(kind: JavaObject) -> float:
    name = str(kind.typeName()).split("(", maxsplit=1)[0]
    if name == "struct":
        return 2 * _WORD + _bytes_of(field.dataType() for field in kind.fields())
    if name in _OF_ANY_LENGTH:
        return math.inf
    if name in _TEXTS:
        return _WORD + _TEXT_BYTES
    size = int(kind.defaultSize())
    return _WORD if size <= _WORD else _WORD + size


def _entry_bytes(key_bytes: float, value_bytes: float) -> float:
    return _ENTRY_BYTES + key_bytes + value_bytes
