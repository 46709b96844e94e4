"""Which queries drop records that they are given a second time.

A query does if its plan drops duplicates before anything else that depends on several rows, by
values that are the same whenever a record is read. Its state is handed over, so that it knows the
records of history. What is not understood counts as not dropping any.
"""

import logging
from collections.abc import Iterable, Set

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from backfill.api.source import Source
from backfill.runtime.catalyst import analyzed, clock_pattern, elements, id_of, kind_of, nodes_of
from backfill.runtime.queries.logical_plan import (
    HAND_ON_COLUMNS,
    event_times,
    is_source,
    source_of,
)
from backfill.runtime.source.record_columns import TOPIC

_ROW_BY_ROW = HAND_ON_COLUMNS | {"EventTimeWatermark", "Filter"}
_DROPS = {"Deduplicate", "DeduplicateWithinWatermark"}
_DECODES = {"AvroDataToCatalyst", "JsonToStructs"}
"""Expressions that give the same values for the value of a record and the one made of its row."""

_log = logging.getLogger(__name__)


def sources_read_twice(frame: DataFrame, sources: Iterable[Source]) -> set[str]:
    """Names of those of these sources of which a query of this frame is not known to drop records
    that it is given again.
    """
    given = {source.name: source for source in sources}
    if not given:
        return set()
    try:
        clock = clock_pattern(frame.sparkSession)
        return _Plan(given, clock).not_dropped(analyzed(frame))
    except Exception:  # no program fails for a warning
        _log.exception("whether a query drops duplicates could not be told")
        return set(given)


class _Plan:
    def __init__(self, sources: dict[str, Source], clock: JavaObject):
        self._sources = sources
        self._clock = clock

    def not_dropped(self, node: JavaObject) -> set[str]:
        """Names of the sources below a node whose records it may give twice."""
        if is_source(node):
            return {source_of(node)} & self._sources.keys()
        if kind_of(node) in _DROPS and self._recognizes(node):
            return set()
        below = [*elements(node.children()), *elements(node.subqueries())]
        return set().union(*map(self.not_dropped, below))

    def _recognizes(self, node: JavaObject) -> bool:
        """Whether a node knows each record again that it is given twice."""
        child, compared = node.child(), [id_of(key) for key in elements(node.keys())]
        if kind_of(node) == "DeduplicateWithinWatermark":  # it forgets them by their time
            compared += [id_of(column) for column, _ in event_times(child)]
        return self._same(child, set(compared), set())

    def _same(self, node: JavaObject, columns: Set[int], decoded: Set[int]) -> bool:
        """Whether columns of a node have the same values whenever a record is read, as far as they
        are used; of ``decoded`` columns only what is decoded from them is.
        """
        kind, children = kind_of(node), elements(node.children())
        if is_source(node):
            return True
        if kind == "Project" and _is_of_records(node):
            return self._same_in_records(node, columns, decoded)
        match kind:
            case "Project":
                made = {id_of(each): each for each in elements(node.projectList())}
                below = _Used()
                return all(
                    self._use(made[column], below, decoded=inner)
                    for used, inner in ((columns, False), (decoded, True))
                    for column in used
                ) and self._same(children[0], below.columns, below.decoded)
            case "Generate":
                below = _Used()
                output = {id_of(each) for each in elements(node.generatorOutput())}
                generated = self._use(node.generator(), below, decoded=False)
                if output & (columns | decoded) and not generated:
                    return False
                return self._same(
                    children[0], below.columns | columns - output, below.decoded | decoded - output
                )
            case "Union":
                return all(
                    self._same(child, *(_at(node, child, each) for each in (columns, decoded)))
                    for child in children
                )
            case kind if kind in _ROW_BY_ROW:
                return self._same(children[0], columns, decoded)
        return False

    def _use(self, expression: JavaObject, used: "_Used", *, decoded: bool) -> bool:
        """Adds the columns that a value is computed from. False if it may differ each time."""
        if not expression.deterministic() or expression.containsPattern(self._clock):
            return False
        pending = [(expression, decoded)]
        while pending:
            each, inner = pending.pop()
            if kind_of(each) == "AttributeReference":
                (used.decoded if inner else used.columns).add(id_of(each))
            inner = inner or kind_of(each) in _DECODES
            pending += [(child, inner) for child in elements(each.children())]
        return True

    def _same_in_records(self, node: JavaObject, columns: Set[int], decoded: Set[int]) -> bool:
        """Whether these columns of history's records are those of Kafka's."""
        names = {id_of(each): str(each.name()) for each in elements(node.output())}
        (name,) = {source_of(each) for each in nodes_of(node) if is_source(each)}
        source = self._sources.get(name)
        if source is None:  # a source whose records are not read twice
            return True
        same = {"key", "topic", "partition", "offset"}
        if source.kafka.timestamp_column is not None:
            same.add("timestamp")
        if source.live is not None and source.live.kafka.value.column is not None:
            same.add("value")
        return {names[each] for each in columns} <= same and {
            names[each] for each in decoded
        } <= same | {"value"}


class _Used:
    """Columns that values are computed from."""

    def __init__(self) -> None:
        self.columns: set[int] = set()
        self.decoded: set[int] = set()
        """Those of which only what is decoded from them is used."""


def _is_of_records(project: JavaObject) -> bool:
    """Whether a projection gives a table's rows the shape of Kafka's records."""
    return any(each.name() == TOPIC for each in elements(project.child().output())) and not any(
        each.name() == TOPIC for each in elements(project.output())
    )


def _at(union: JavaObject, child: JavaObject, columns: Set[int]) -> set[int]:
    """The columns of a union's child in the place of columns of the union."""
    pairs = zip(elements(union.output()), elements(child.output()), strict=True)
    return {id_of(mine) for united, mine in pairs if id_of(united) in columns}
