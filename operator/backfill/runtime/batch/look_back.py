"""How far back and ahead in event time the results of a streaming query depend on its sources,
by its analyzed plan.

It is an abstract interpretation. For a time *a* among a node's columns and for every source, all
rows that have the value v in *a* are the same whatever is read, as long as the source's rows with
event times in [v - back, v + ahead] are. What is not understood has no bound: a wrong one would
silently lose results.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from backfill.runtime.batch.moved_times import TIME_TYPES, Moments
from backfill.runtime.batch.time_expressions import (
    Alternative,
    ColumnKey,
    Constraint,
    Expressions,
    Path,
    Paths,
    all_expressions,
    extreme_id,
    impurity,
)
from backfill.runtime.batch.time_reach import (
    ANYWHERE,
    SAME,
    Bounded,
    Extent,
    Reach,
    Sessions,
    TimeRange,
    Unbounded,
)
from backfill.runtime.catalyst import (
    Catalyst,
    analyzed,
    children_of,
    clock_pattern,
    elements,
    field_names,
    id_of,
    ids_and_names,
    kind_of,
    made_or_handed_on,
)
from backfill.runtime.queries.clock_dependence import comparison_with_clock
from backfill.runtime.queries.logical_plan import (
    HAND_ON_COLUMNS,
    STATE_OF_ONE_CHILD,
    event_times,
    is_session_window,
    session_window,
)
from backfill.runtime.source.clock import is_source, source_of
from backfill.runtime.source.timestamp_columns import places_of
from backfill.runtime.spark_versions import MAPS_IN_ARROW

_WINDOW = "spark.timeWindow"
_START, _END = ("start",), ("end",)
_COPIES = 16
"""Up to this many rows that a row is expanded to are looked at one by one."""
_ROW_BY_ROW = HAND_ON_COLUMNS | MAPS_IN_ARROW | {"MapInPandas"}
"""Nodes that pass on rows one by one: columns with the identities they had, or new ones of which
nothing is known.
"""
_JOINS = {
    "Cross": "cross",
    "FullOuter": "full outer",
    "Inner": "inner",
    "LeftAnti": "left anti",
    "LeftOuter": "left outer",
    "LeftSemi": "left semi",
    "RightOuter": "right outer",
}
_OWN_STATE = "keeps user-defined state, whose extent in time is unknown"
_WHOLE = "depends on all rows of the stream"
_BY_ORDER = {"First", "Last"}
"""Aggregate functions that assume rows in the order in which they arrived."""
_REASONS = {
    "FlatMapCoGroupsInPandas": _OWN_STATE,
    "FlatMapGroupsInPandas": _OWN_STATE,
    "FlatMapGroupsInPandasWithState": _OWN_STATE,
    "FlatMapGroupsWithState": _OWN_STATE,
    "GlobalLimit": _WHOLE,
    "LocalLimit": _WHOLE,
    "Offset": _WHOLE,
    "Sample": "picks rows at random",
    "Sort": _WHOLE,
    "Tail": _WHOLE,
    "TransformWithState": _OWN_STATE,
    "TransformWithStateInPandas": _OWN_STATE,
    "TransformWithStateInPySpark": _OWN_STATE,
    "Window": "is a window function over rows, which is not bounded by time",
}


class KnownRows(Protocol):
    """What is known of a node's rows."""

    @property
    def times(self) -> Mapping[ColumnKey, Mapping[int, TimeRange]]:
        """For the value of a column, where the event times of the rows are that they are made of,
        by the place where the plan reads them.
        """

    @property
    def reads(self) -> frozenset[int]:
        """The places where the plan reads what they may depend on."""

    def gap(self, first: ColumnKey, second: ColumnKey) -> TimeRange:
        """Where the second column's value is, seen from the first one's."""


Visit = Callable[[JavaObject, Sequence[KnownRows | None], Sequence[str]], None]
"""Gets a node that streams, what is known of each child's rows, and the source of each place where
the plan reads one.
"""


class _Refused(Exception):  # noqa: N818 - not an error: it is an answer
    """Why there is no bound."""


class _NoTime(_Refused):
    """The output does not say what the time of a result is."""


@dataclass(slots=True)
class _Leaf:
    """One place where the plan reads a source."""

    source: str
    event_column: str | None = None
    timed: bool = False
    """Whether it is known which column is its event time."""


@dataclass(slots=True)
class _Rows:
    """What is known of a node's rows."""

    leaves: frozenset[int] = frozenset()
    """What they may depend on: places where the plan reads a source, and below zero, sessions of
    an aggregation, by the edge that is their time."""
    times: dict[ColumnKey, dict[int, TimeRange]] = field(default_factory=dict)
    """Where the event times of the rows that they depend on are, seen from a column's value, for
    all leaves that matter to rows with a value in it. Columns that are not here may be anything.
    """
    apart: dict[tuple[ColumnKey, ColumnKey], TimeRange] = field(default_factory=dict)
    """Where the second column's value is, seen from the first one's, in rows that have both."""
    roots: dict[ColumnKey, ColumnKey] = field(default_factory=dict)
    """Another column that is null wherever this one is."""
    names: dict[ColumnKey, dict[int, str]] = field(default_factory=dict)
    """What columns are called in the sources, where they are passed on unchanged."""
    nulls: frozenset[int] = frozenset()
    """Columns without a value in any row."""
    stateful: bool = False
    impure: str = ""
    """What below depends on chance, on the clock or on how rows are distributed."""

    def root(self, key: ColumnKey) -> ColumnKey:
        return self.roots.get(key, key)

    def name(self, key: ColumnKey) -> dict[int, str]:
        if key in self.names:
            return self.names[key]
        number, path = key
        whole = self.names.get((number, ()), {}) if path else {}
        return {leaf: ".".join((name, *path)) for leaf, name in whole.items()}

    def time(self, key: ColumnKey) -> dict[int, TimeRange]:
        return self.times.get(key) or dict.fromkeys(self.leaves, ANYWHERE)

    def known(self, key: ColumnKey) -> bool:
        """Whether there is a bound for all that rows with a value in the column depend on."""
        return key in self.times and all(
            each.known for leaf, each in self.times[key].items() if leaf >= 0
        )

    @property
    def reads(self) -> frozenset[int]:
        """The places where the plan reads what they may depend on."""
        return frozenset(leaf for leaf in self.leaves if leaf >= 0)

    def gap(self, first: ColumnKey, second: ColumnKey) -> TimeRange:
        """Where the second column's value is, seen from the first one's."""
        if first == second:
            return SAME
        distance = self.apart.get((first, second), ANYWHERE)
        if (second, first) in self.apart:
            distance = distance.meet(self.apart[second, first].reverse())
        # A row with both values depends on a row that either of them reaches, of one source.
        mine, other = self.times.get(first, {}), self.times.get(second, {})
        common = {leaf for leaf in mine.keys() & other.keys() if leaf >= 0}
        if not common:
            return distance
        witnessed = [mine[leaf].then(other[leaf].reverse()) for leaf in common]
        return distance.meet(_hull(witnessed))

    @property
    def keys(self) -> set[ColumnKey]:
        """The columns of which anything is known."""
        pairs = itertools.chain.from_iterable(self.apart)
        return {*self.times, *self.names, *pairs}

    @property
    def paths(self) -> Paths:
        """The same, by column."""
        found: dict[int, list[Path]] = {}
        for number, path in self.keys:
            found.setdefault(number, []).append(path)
        return found

    def pairs(
        self, columns: Mapping[ColumnKey, ColumnKey]
    ) -> Iterator[tuple[ColumnKey, ColumnKey]]:
        """Those pairs of columns, in their order, of which it may be known how far apart they are.

        A table may have thousands of columns, most of which say nothing of any time.

        Args:
            columns: with the rows' own column that each is made of.
        """
        near = self._near
        made: dict[ColumnKey, list[tuple[int, ColumnKey]]] = {}
        for place, (column, own) in enumerate(columns.items()):
            made.setdefault(own, []).append((place, column))
        for place, (column, own) in enumerate(columns.items()):
            others = (each for key in {own, *near.get(own, ())} for each in made.get(key, ()))
            for other_place, other in sorted(others):
                if other_place > place:
                    yield column, other

    @property
    def _near(self) -> dict[ColumnKey, set[ColumnKey]]:
        """By column the others with which it has a gap that may be bounded."""
        near: dict[ColumnKey, set[ColumnKey]] = {}
        for first, second in self.apart:
            near.setdefault(first, set()).add(second)
            near.setdefault(second, set()).add(first)
        timed: dict[int, set[ColumnKey]] = {}
        for key, ranges in self.times.items():
            for leaf in ranges:
                if leaf >= 0:
                    timed.setdefault(leaf, set()).add(key)
        for keys in timed.values():
            for key in keys:
                near.setdefault(key, set()).update(keys)
        return near

    def only(self, kept: Iterable[ColumnKey]) -> "_Rows":
        """The same rows, of which only these columns count."""
        keys = set(kept)
        return replace(
            self,
            times={key: time for key, time in self.times.items() if key in keys},
            apart={pair: gap for pair, gap in self.apart.items() if keys.issuperset(pair)},
            roots={key: root for key, root in self.roots.items() if key in keys},
            names={key: name for key, name in self.names.items() if key in keys},
        )

    def where(self, constraints: list[Constraint]) -> "_Rows":
        """Those of the rows whose columns are this far apart."""
        both = [*constraints, *(each.reverse() for each in constraints)]
        times, apart = dict(self.times), dict(self.apart)
        for each in both:
            pair = each.first, each.second
            apart[pair] = apart.get(pair, ANYWHERE).meet(each.apart)
        rows = replace(self, apart=apart)
        keys = rows.keys
        for _ in range(len(constraints)):  # a bound may lead to the next one
            times = dict(rows.times)
            for key in keys:
                found = dict(rows.time(key))
                for each in both:
                    way = rows.gap(key, each.first).then(each.apart)
                    for leaf, range_ in rows.time(each.second).items():
                        if leaf in found:
                            found[leaf] = found[leaf].meet(way.then(range_))
                if any(range_ != ANYWHERE for range_ in found.values()):
                    times[key] = found
            if times == rows.times:
                break
            rows = replace(rows, times=times)
        return rows


def analyze(
    frame: DataFrame,
    timestamp_column: str | None,
    arrival_columns: Mapping[str, str] | None = None,
) -> Bounded | Unbounded:
    """What the results of a streaming DataFrame in append mode depend on.

    Args:
        frame: reads the backfill's sources.
        timestamp_column: the column of the result that is its time, nested ones with dots; None
            where there is none.
        arrival_columns: by source its ``timestampColumn``, which is the event time of rows that
            are read without a watermark.
    """
    plan = analyzed(frame)
    try:
        if clock := comparison_with_clock(frame):
            raise _Refused(f"the query's results depend on when it runs: {clock}")
        return _Analysis(frame, arrival_columns or {}).result(plan, timestamp_column)
    except _Refused as reason:
        return Unbounded(str(reason), lacks_time=isinstance(reason, _NoTime))


def visit_nodes(
    frame: DataFrame, plan: JavaObject, arrival_columns: Mapping[str, str], visit: Visit
) -> Unbounded | None:
    """Visits the nodes of a plan of a streaming DataFrame, children first. Returns why if one was
    not understood; those above it are not visited.
    """
    try:
        _Analysis(frame, arrival_columns, visit).walk(plan)
    except _Refused as reason:
        return Unbounded(str(reason))
    return None


class _Analysis:
    def __init__(
        self, frame: DataFrame, arrival_columns: Mapping[str, str], visit: Visit | None = None
    ):
        self._clock = clock_pattern(frame.sparkSession)
        catalyst = Catalyst(frame.sparkSession)
        self._is_orderable, self._is_correlated = catalyst.is_orderable, catalyst.is_correlated
        self._moments = Moments(frame.sparkSession)
        self._arrival_columns = arrival_columns
        self._leaves: list[_Leaf] = []
        self._joins: list[tuple[str, frozenset[int], frozenset[int]]] = []
        self._delay_us = 0
        """The longest delay of a watermark. The query's watermark is the least of all of them, so a
        stream keeps rows of every source that are this late.
        """
        self._session_gap: int | None = None
        self._session_ends: list[dict[int, TimeRange] | None] = []
        """For each aggregation by session windows, where the rows are that a session depends on,
        seen from its end; None where that is no moment.
        """
        self._pure = False
        self._visit = visit

    def walk(self, plan: JavaObject) -> _Rows | None:
        self._pure = plan.deterministic() and not plan.containsPattern(self._clock)
        return self._node(plan)

    def result(self, plan: JavaObject, column: str | None) -> Bounded:
        rows = self.walk(plan)
        if rows is None:
            raise _Refused("the query reads no stream")
        if not rows.stateful:
            return Bounded(
                {leaf.source: Reach(0, 0, 0, None) for leaf in self._leaves}, stateless=True
            )
        if column is None:
            raise _NoTime(
                "its results depend on more than one row, and its output has no timestampColumn"
                " that shows which ones"
            )
        times = self._times_of_result(plan, rows, column)
        return Bounded(
            self._by_source(times),
            session_gap_us=self._session_gap,
            sessions=tuple(
                self._sessions_that_matter(number, times, self._top_of_state(plan))
                for number in range(len(self._session_ends))
            ),
        )

    def _sessions_that_matter(
        self, number: int, times: Mapping[int, TimeRange], top: JavaObject
    ) -> Sessions:
        ends = self._session_ends[number]
        edges: list[tuple[Literal["start", "end"], int]] = [
            ("start", _leaf_of_starts(number)),
            ("end", _leaf_of_ends(number)),
        ]
        for edge, leaf in edges:
            seen = times.get(leaf, ANYWHERE)
            if ends is not None and seen.known and not seen.back.sessions + seen.ahead.sessions:
                return Sessions(
                    edge,
                    int(seen.back.us),
                    int(seen.ahead.us),
                    closed_by=self._by_source(ends),
                    alone=len(self._session_ends) == 1 and session_window(top) is not None,
                )
        return Sessions()

    def _top_of_state(self, node: JavaObject) -> JavaObject:
        """The node with state above all others, or the one below which there are several."""
        while True:
            below = [child for child in children_of(node) if child.isStreaming()]
            if len(below) != 1 or kind_of(node) in STATE_OF_ONE_CHILD:
                return node
            (node,) = below

    def _times_of_result(
        self, plan: JavaObject, rows: _Rows, column: str
    ) -> Mapping[int, TimeRange]:
        output = elements(plan.output())
        names = [str(attribute.name()) for attribute in output]
        found = places_of(column, names)
        if len(found) != 1:
            few = "no" if not found else "more than one"
            raise _Refused(f"the query's result has {few} column {column}, its timestampColumn")
        attribute, below = output[found[0]], column[len(names[found[0]]) + 1 :]
        path = _path_in(attribute.dataType(), tuple(below.split(".")) if below else ())
        kind = _type_at(attribute.dataType(), path)
        if kind not in TIME_TYPES:
            raise _Refused(f"{column}, the output's timestampColumn, is a {kind}, not a timestamp")
        key = (id_of(attribute), path)
        if not rows.known(key):
            raise _Refused(self._why_unknown(rows, [key], f"the result's {column}"))
        return rows.times[key]

    def _by_source(self, times: Mapping[int, TimeRange]) -> dict[str, Reach]:
        """By source; what gives only rows without a time does not matter anywhere."""
        found: dict[str, Reach] = {}
        for number, leaf in enumerate(self._leaves):  # none of them are sessions
            range_ = times.get(number, SAME)
            each = Reach(
                int(range_.back.us),
                int(range_.ahead.us),
                self._delay_us,
                leaf.event_column,
                range_.back.sessions,
                range_.ahead.sessions,
            )
            before = found.get(leaf.source)
            found[leaf.source] = each if before is None else _joint(before, each)
        return found

    def _why_unknown(self, rows: _Rows, keys: list[ColumnKey], what: str) -> str:
        open_ones = {
            leaf
            for key in keys
            if key in rows.times
            for leaf, range_ in rows.times[key].items()
            if leaf >= 0 and not range_.known
        }
        for leaf in sorted(open_ones or rows.reads):
            if not self._leaves[leaf].timed:
                return (
                    f"{self._leaves[leaf].source} is read without a watermark, so the event times"
                    " of its rows are unknown"
                )
        for kind, left, right in self._joins:
            if open_ones & (left | right):
                return (
                    f"the {kind} join of {self._names(left)} with {self._names(right)} does not"
                    " limit, in both directions, how far apart in event time their rows may be"
                )
        sources = self._names(rows.reads)
        return f"it is unknown how {what} depends on the event times of {sources}"

    def _names(self, leaves: Iterable[int]) -> str:
        return " and ".join(sorted({self._leaves[leaf].source for leaf in leaves}))

    # Nodes

    def _node(self, node: JavaObject) -> _Rows | None:
        """What is known of a node's rows; None where it does not stream."""
        if not node.isStreaming():
            return None
        kind = kind_of(node)
        children = children_of(node)
        if not children or is_source(node):
            return self._relation(node)
        below = [self._node(child) for child in children]
        streams = [rows for rows in below if rows is not None]
        if self._visit is not None:
            self._visit(node, below, [leaf.source for leaf in self._leaves])
        if not node.subqueries().isEmpty() and any(
            map(self._is_correlated, elements(node.expressions()))
        ):
            # where conditions move, the subquery would keep the old identities of these columns
            raise _Refused(f"{kind} has a subquery that refers to columns outside of it")
        impure = "" if self._pure else self._impurity(node)
        if kind == "Union":
            if len(streams) < len(below):
                raise _Refused("Union combines a stream with rows that are not streamed")
            rows = self._union(node, children, streams)
        elif kind == "Join" and len(children) == 2:
            rows = self._join(node, below[0], below[1])
        else:
            rows = self._one_child(node, kind, streams[0])
        rows.impure = next(
            (each for each in (*(rows.impure for rows in streams), impure) if each), ""
        )
        if rows.impure and rows.stateful and self._is_state(kind, below):
            raise _Refused(
                f"{rows.impure} is below or within {kind}, so the results of {kind} would vary"
            )
        return rows

    def _is_state(self, kind: str, below: list[_Rows | None]) -> bool:
        return kind in STATE_OF_ONE_CHILD or (kind == "Join" and None not in below)

    def _impurity(self, node: JavaObject) -> str:
        each = (impurity(expression, self._clock) for expression in elements(node.expressions()))
        return next((found for found in each if found), "")

    def _one_child(self, node: JavaObject, kind: str, child: _Rows) -> _Rows:
        match kind:
            case "Project":
                return self._columns(child, _choices_of(made_or_handed_on(node)))
            case "Filter":
                return child.where(self._expressions(child).constraints(node.condition()))
            case "EventTimeWatermark":
                return self._watermark(node, child)
            case "Expand":
                return self._expand(node, child)
            case "Generate" if not _is_table_function(node):
                return replace(child)
            case "Aggregate":
                return self._aggregate(node, child)
            case "Distinct":
                if any(map(is_session_window, elements(node.output()))):
                    raise _Refused("DISTINCT of session windows merges any number of them")
                return self._deduplicate(child, elements(node.output()), "DISTINCT")
            case "Deduplicate":
                return self._deduplicate(child, elements(node.keys()), "dropDuplicates")
            case "DeduplicateWithinWatermark":
                return self._deduplicate_within_watermark(node, child)
            case _ if kind in _ROW_BY_ROW:
                return replace(child)
        why = _REASONS.get(kind, "is not known to depend on a bounded stretch of event time")
        raise _Refused(f"{kind} {why}")

    def _relation(self, node: JavaObject) -> _Rows:
        if not is_source(node):
            raise _Refused(f"the query streams from {node.simpleStringWithNodeId()}")
        leaf = _Leaf(source_of(node))
        number = len(self._leaves)
        self._leaves.append(leaf)
        columns = ids_and_names(node.output())
        rows = _Rows(
            frozenset({number}),
            names={(column, ()): {number: name} for column, name in columns},
        )
        arrival = self._arrival_columns.get(leaf.source)
        for column, name in columns:
            if arrival is not None and (arrival == name or arrival.startswith(f"{name}.")):
                path = tuple(arrival[len(name) + 1 :].split(".")) if arrival != name else ()
                rows.times[column, path] = {number: SAME}
                leaf.timed, leaf.event_column = True, arrival
        return rows

    def _watermark(self, node: JavaObject, child: _Rows) -> _Rows:
        """Below all state it says what the event time is. Above, it is that of results."""
        delay_us = int(node.getDelayMs(node.delay())) * 1_000
        self._delay_us = max(self._delay_us, delay_us)
        if child.stateful:
            return replace(child)
        time = (id_of(node.eventTime().toAttribute()), ())
        names = child.name(time)
        for number in child.leaves:
            leaf = self._leaves[number]
            leaf.timed = True
            leaf.event_column = names.get(number)
        unseen, root = replace(child, times={}), child.root(time)
        # what may be there without an event time says nothing of when its row happened
        keys = {time, *(key for key in child.keys if child.root(key) == root)}
        seen = {key: unseen.gap(key, time) for key in keys}
        times = {
            key: dict.fromkeys(child.leaves, range_)
            for key, range_ in seen.items()
            if range_ != ANYWHERE
        }
        return replace(child, times=times)

    def _expressions(self, rows: _Rows) -> Expressions:
        return Expressions(self._moments, rows.nulls)

    def _select(self, rows: _Rows, columns: list[JavaObject]) -> _Rows:
        """Rows of these named expressions."""
        return self._columns(rows, _choices_of(columns))

    def _expand(self, node: JavaObject, rows: _Rows) -> _Rows:
        """Several rows for each one: a sliding window's, or those of grouping sets."""
        projections, columns = elements(node.projections()), elements(node.output())
        if len(projections) > _COPIES and any(
            column.metadata().contains(_WINDOW) and kind_of(value) == "CreateNamedStruct"
            for column, value in zip(columns, elements(projections[0]), strict=True)
        ):  # a sliding window's copies differ by its slide alone
            projections = [projections[0], projections[-1]]
        each = [elements(projection) for projection in projections]
        return self._columns(rows, zip(columns, zip(*each, strict=True), strict=True))

    def _columns(
        self, rows: _Rows, columns: Iterable[tuple[JavaObject | int, Iterable[JavaObject]]]
    ) -> _Rows:
        """Rows with columns that have the value of one of some expressions each, and with those
        that are passed on, by their ids.
        """
        expressions, paths = self._expressions(rows), rows.paths
        given: dict[ColumnKey, list[Alternative]] = {}
        apart: dict[tuple[ColumnKey, ColumnKey], TimeRange] = {}
        nulls = set()
        for column, choices in columns:
            if isinstance(column, int):
                number, values = column, [expressions.column(column, paths)]
            else:
                number, window = id_of(column), column.metadata().contains(_WINDOW)
                values = [expressions.value(each, paths, window=window) for each in choices]
            there = [value for value in values if not value.is_null]
            if not there:
                nulls.add(number)
                continue
            for path in set.intersection(*(set(value.alternatives) for value in there)):
                given[number, path] = [
                    each.then(SAME, total=len(there) == len(values))
                    for value in there
                    for each in value.alternatives[path]
                ]
            lengths = {value.length_us for value in there}
            if None not in lengths:
                pair = ((number, ("start",)), (number, ("end",)))
                apart[pair] = _hull(TimeRange.of(length, length) for length in lengths if length)
        return self._derived(rows, given, apart, frozenset(nulls))

    def _derived(
        self,
        rows: _Rows,
        given: Mapping[ColumnKey, list[Alternative]],
        apart: dict[tuple[ColumnKey, ColumnKey], TimeRange],
        nulls: frozenset[int],
    ) -> _Rows:
        times: dict[ColumnKey, dict[int, TimeRange]] = {}
        roots: dict[ColumnKey, ColumnKey] = {}
        names: dict[ColumnKey, dict[int, str]] = {}
        single = {}
        for key, alternatives in given.items():
            if alternatives and all(each.key in rows.times for each in alternatives):
                times[key] = _hulls(
                    {
                        leaf: each.moved.reverse().then(range_)
                        for leaf, range_ in rows.times[each.key].items()
                    }
                    for each in alternatives
                )
            if len({each.key for each in alternatives}) == 1:
                moved = _hull(each.moved for each in alternatives)
                total = all(each.total for each in alternatives)
                only = single[key] = Alternative(alternatives[0].key, moved, total)
                if total:
                    roots[key] = rows.root(only.key)
                if only.moved == SAME and (name := rows.name(only.key)):
                    names[key] = name
        for first, second in rows.pairs({key: each.key for key, each in single.items()}):
            one, other = single[first], single[second]
            gap = one.moved.reverse().then(rows.gap(one.key, other.key)).then(other.moved)
            if gap != ANYWHERE:
                apart[first, second] = gap.meet(apart.get((first, second), ANYWHERE))
        return replace(
            rows, times=times, apart=apart, roots=roots, names=names, nulls=nulls | rows.nulls
        )

    def _aggregate(self, node: JavaObject, child: _Rows) -> _Rows:
        grouping = elements(node.groupingExpressions())
        values = self._grouping_times(child, grouping)
        if not any(value and all(child.known(one.key) for one in value) for value in values):
            by = ", ".join(str(each.toString()) for each in grouping) or "nothing"
            times = [one.key for value in values for one in value if one.key in child.times]
            if times or not all(self._leaves[leaf].timed for leaf in child.reads):
                raise _Refused(self._why_unknown(child, times, f"what Aggregate groups by ({by})"))
            raise _Refused(
                f"Aggregate groups by {by}, and no time window or other time limits its groups"
            )
        columns = elements(node.aggregateExpressions())
        for each in (each for column in columns for each in all_expressions(column)):
            if kind_of(each) in _BY_ORDER:
                raise _Refused(
                    f"{each.sql()} depends on the order of rows, which batch jobs do not preserve"
                    " (use min_by or max_by with a time, or any_value)"
                )
        session = session_window(node)
        inner = child if session is None else self._sessions(child, session)
        keys = [value[0] for value in values if len(value) == 1]
        extremes = self._extremes(child, inner, keys, columns)
        rows = self._select(extremes, columns)
        return replace(rows, stateful=True)

    def _grouping_times(self, rows: _Rows, grouping: list[JavaObject]) -> list[list[Alternative]]:
        """The values that groups have one of each."""
        expressions, paths = self._expressions(rows), rows.paths
        return [
            alternatives
            for each in grouping
            for alternatives in expressions.value(each, paths).alternatives.values()
        ]

    def _sessions(self, rows: _Rows, window: JavaObject) -> _Rows:
        """Rows of which those of one session have the whole one's start and end."""
        start, end = (id_of(window), _START), (id_of(window), _END)
        if not rows.known(start):
            raise _Refused(self._why_unknown(rows, [start], "the start of a session window"))
        gap = rows.gap(start, end)
        if not gap.known or gap.ahead.sessions:
            raise _Refused(
                "the gap of a session window is neither a constant nor one of several constants"
            )
        longest = gap.ahead
        self._session_gap = max(self._session_gap or 0, int(longest.us))
        session_long = Extent(0, 1)
        length = TimeRange(gap.back, gap.ahead + session_long)
        number = len(self._session_ends)
        starts, ends = _leaf_of_starts(number), _leaf_of_ends(number)
        times = dict(rows.times)
        times[start] = {
            leaf: TimeRange(each.back + longest, each.ahead + session_long + longest)
            for leaf, each in rows.times[start].items()
        } | {starts: SAME, ends: length}
        # seen from its last event, which is a gap before its end
        times[end] = {
            leaf: TimeRange(each.back + longest + session_long + longest, each.ahead)
            for leaf, each in rows.times[start].items()
        } | {starts: length.reverse(), ends: SAME}
        moments = _type_at(window.dataType(), _START) == "timestamp"
        self._session_ends.append(times[end] if moments else None)
        apart = {
            pair: each for pair, each in rows.apart.items() if not {start, end}.issuperset(pair)
        }
        apart[start, end] = length
        return replace(rows, leaves=rows.leaves | {starts, ends}, times=times, apart=apart)

    def _extremes(
        self, child: _Rows, inner: _Rows, keys: list[Alternative], columns: list[JavaObject]
    ) -> _Rows:
        """With the least and greatest times of groups, as columns of their own. A time that is null
        only where the extreme is shows which rows a group is made of.
        """
        expressions, paths = self._expressions(child), child.paths
        times, roots = dict(inner.times), dict(inner.roots)
        for extreme in (each for column in columns for each in all_expressions(column)):
            if kind_of(extreme) != "AggregateExpression":
                continue
            function = extreme.aggregateFunction()
            if kind_of(function) not in {"Max", "Min"}:
                continue
            value = expressions.value(function.child(), paths).alternatives.get(())
            if not value or len(value) != 1:
                continue
            (member,) = value
            of_all = member.total and not extreme.filter().isDefined()
            found: dict[int, TimeRange] = {}
            for each in keys:
                key = each.key
                same_root = each.total and child.root(key) == child.root(member.key)
                if not inner.known(key) or not same_root:
                    continue
                to_key = member.moved.reverse().then(child.gap(member.key, key))
                edge = _START if kind_of(function) == "Min" else _END
                of_a_session = inner.times[key] != child.times[key]
                if of_a_session and not of_all:
                    continue  # no edge of the session says whether such a result is closed
                # a session's edge, which is not the member's but for the first or last one
                if of_a_session and not (key[1] == edge and to_key.exact):
                    to_key = TimeRange(to_key.back + Extent(0, 1), to_key.ahead + Extent(0, 1))
                to_group = to_key.then(each.moved)
                for leaf, range_ in inner.times[key].items():
                    reached = to_group.then(each.moved.reverse()).then(range_)
                    found[leaf] = found.get(leaf, ANYWHERE).meet(reached)
            if found:
                number = extreme_id(extreme)
                times[number, ()] = found
                roots[number, ()] = (number, ())
        return replace(inner, times=times, roots=roots)

    def _deduplicate(self, child: _Rows, columns: list[JavaObject], what: str) -> _Rows:
        """Which of several rows with the same keys stays is chance: nothing is known of other
        columns.
        """
        keys = {id_of(each) for each in columns}
        kept = [key for key in child.keys if key[0] in keys]
        if not any(child.known(key) for key in kept):
            names = ", ".join(str(each.name()) for each in columns)
            timed = [key for key in kept if key in child.times]
            if timed or any(not self._leaves[leaf].timed for leaf in child.reads):
                raise _Refused(self._why_unknown(child, timed, f"the time among {names}"))
            raise _Refused(f"{what} of {names} has no event time among its columns")
        return replace(child.only(kept), stateful=True)

    def _deduplicate_within_watermark(self, node: JavaObject, child: _Rows) -> _Rows:
        marked = event_times(node.child())
        time = (id_of(marked[0][0]), ()) if len(marked) == 1 else None
        if time is None or not child.known(time):
            raise _Refused(
                "dropDuplicatesWithinWatermark does not use a single event time of known origin"
            )
        delay = Extent(marked[0][1])
        for each in elements(node.keys()):
            if not self._is_orderable(each.dataType()):
                raise _Refused(
                    f"dropDuplicatesWithinWatermark uses {each.name()}, a"
                    f" {each.dataType().typeName()}, whose values have no order"
                )
        keys = {id_of(each) for each in elements(node.keys())}
        times = {key: ranges for key, ranges in child.times.items() if key[0] in keys}
        for key in child.times:
            if key[0] not in keys and child.gap(time, key).exact:
                times[key] = {
                    leaf: TimeRange(each.back + delay, each.ahead)
                    for leaf, each in child.times[key].items()
                }
        kept = [key for key in child.keys if key[0] in keys or key in times]
        return replace(child.only(kept), times=times, stateful=True)

    def _join(self, node: JavaObject, left: _Rows | None, right: _Rows | None) -> _Rows:
        kind = str(node.joinType().toString())
        if kind not in _JOINS:
            raise _Refused(f"joins of type {kind} are not supported")
        if left is None or right is None:
            return self._join_with_table(kind, left, right)
        both = _side_by_side(left, right)
        condition = node.condition()
        constraints = (
            self._expressions(both).constraints(condition.get()) if condition.isDefined() else []
        )
        self._joins.append((_JOINS[kind], left.reads, right.reads))
        mine = {id_of(each) for each in elements(node.left().output())}
        across = [
            each if each.first[0] in mine else each.reverse()
            for each in constraints
            if (each.first[0] in mine) != (each.second[0] in mine)
        ]
        rows = replace(
            both,
            times={
                **_with_other_side(left, right, across),
                **_with_other_side(right, left, [each.reverse() for each in across]),
            },
        )
        for each in across:
            pair = each.first, each.second
            rows.apart[pair] = rows.apart.get(pair, ANYWHERE).meet(each.apart)
        if kind in {"Inner", "Cross"}:
            rows = rows.where(constraints)
        if kind in {"LeftAnti", "LeftSemi"}:
            rows = rows.only(key for key in rows.keys if key[0] in mine)
        return replace(rows, stateful=True)

    def _join_with_table(self, kind: str, left: _Rows | None, right: _Rows | None) -> _Rows:
        """Row by row, unless rows of the table without a partner are wanted."""
        of_left = {"Cross", "Inner", "LeftAnti", "LeftOuter", "LeftSemi"}
        of_right = {"Cross", "Inner", "RightOuter"}
        rows = right if left is None else left
        if rows is None or kind not in (of_right if left is None else of_left):
            raise _Refused(
                f"a {_JOINS[kind]} join returns rows of a table that no row of the stream matches"
            )
        return replace(rows)

    def _union(self, node: JavaObject, children: list[JavaObject], each: list[_Rows]) -> _Rows:
        """By position, as Spark also unites the fields of structures: nothing is known of columns
        in which these have other names.
        """
        output = elements(node.output())
        ids, kinds = [id_of(column) for column in output], [_type_of(column) for column in output]
        positions = [
            {
                id_of(column): place
                for place, column in enumerate(elements(child.output()))
                if _type_of(column) == kinds[place]
            }
            for child in children
        ]
        given: list[dict[ColumnKey, ColumnKey]] = []
        """Of each child the columns of the union, with its own ones."""
        missing: list[set[int]] = []
        for rows, places in zip(each, positions, strict=True):
            given.append(
                {
                    (ids[places[number]], path): (number, path)
                    for number, path in rows.keys
                    if number in places
                }
            )
            missing.append({ids[places[number]] for number in rows.nulls & places.keys()})
        united = _Rows(
            frozenset().union(*(rows.leaves for rows in each)),
            nulls=frozenset(set.intersection(*missing)),
            stateful=any(rows.stateful for rows in each),
        )
        parts = list(zip(each, given, missing, strict=True))
        keys = {key for columns in given for key in columns}
        for key in keys:
            there = [
                (rows, columns.get(key)) for rows, columns, none in parts if key[0] not in none
            ]
            if there and all(own is not None and own in rows.times for rows, own in there):
                united.times[key] = _hulls(rows.times[own] for rows, own in there if own)
            names = [rows.name(own) for rows, own in there if own is not None]
            if len(names) == len(there) and all(names):
                united.names[key] = {leaf: name for part in names for leaf, name in part.items()}
        pairs = {
            pair
            for rows, columns, _ in parts
            for pair in rows.pairs({key: columns[key] for key in sorted(columns)})
        }
        for first, second in sorted(pairs):
            gaps = [
                rows.gap(columns[first], columns[second])
                if first in columns and second in columns
                else ANYWHERE
                for rows, columns, none in parts
                if not none & {first[0], second[0]}
            ]
            if gaps and (gap := _hull(gaps)) != ANYWHERE:
                united.apart[first, second] = gap
        return united


def _leaf_of_starts(aggregation: int) -> int:
    """The sessions of an aggregation, of which the time is their start."""
    return -1 - 2 * aggregation


def _leaf_of_ends(aggregation: int) -> int:
    """The same, of which the time is their end."""
    return -2 - 2 * aggregation


def _side_by_side(left: _Rows, right: _Rows) -> _Rows:
    """What is known of each side by itself."""
    apart = {}
    for rows in (left, right):
        for first, second in rows.pairs({key: key for key in sorted(rows.keys)}):
            if (gap := rows.gap(first, second)) != ANYWHERE:
                apart[first, second] = gap
    return _Rows(
        left.leaves | right.leaves,
        {**left.times, **right.times},
        apart,
        {**left.roots, **right.roots},
        {**left.names, **right.names},
        left.nulls | right.nulls,
    )


def _with_other_side(
    mine: _Rows, other: _Rows, across: list[Constraint]
) -> dict[ColumnKey, dict[int, TimeRange]]:
    """The times of one side of a join, with how far the other side's rows are from them: the
    matching ones, and so also those whose absence matters.
    """
    times = {}
    keys = {*mine.keys, *(each.first for each in across)}
    for key in keys:
        found = dict(mine.time(key))
        for leaf in other.leaves:
            ranges = [
                mine.gap(key, each.first).then(each.apart).then(range_)
                for each in across
                if (range_ := other.time(each.second).get(leaf)) is not None
            ]
            found[leaf] = _meet(ranges)
        if any(range_ != ANYWHERE for range_ in found.values()):
            times[key] = found
    return times


def _joint(one: Reach, other: Reach) -> Reach:
    """What both reach, of one source."""
    return Reach(
        max(one.back_us, other.back_us),
        max(one.ahead_us, other.ahead_us),
        max(one.delay_us, other.delay_us),
        one.event_column if one.event_column == other.event_column else None,
        max(one.sessions_back, other.sessions_back),
        max(one.sessions_ahead, other.sessions_ahead),
    )


def _choices_of(
    columns: Iterable[JavaObject | int],
) -> Iterator[tuple[JavaObject | int, list[JavaObject]]]:
    """Columns with the only expression that each may have the value of."""
    return ((each, [] if isinstance(each, int) else [each]) for each in columns)


def _hull(ranges: Iterable[TimeRange]) -> TimeRange:
    first, *others = ranges
    for each in others:
        first = first.hull(each)
    return first


def _meet(ranges: Iterable[TimeRange]) -> TimeRange:
    found = ANYWHERE
    for each in ranges:
        found = found.meet(each)
    return found


def _hulls(times: Iterable[Mapping[int, TimeRange]]) -> dict[int, TimeRange]:
    """By leaf, for a value that has one of several origins."""
    found: dict[int, TimeRange] = {}
    for each in times:
        for leaf, range_ in each.items():
            found[leaf] = found[leaf].hull(range_) if leaf in found else range_
    return found


def _is_table_function(node: JavaObject) -> bool:
    """A Python table function may keep state from row to row."""
    return "UDTF" in kind_of(node.generator())


def _path_in(kind: JavaObject, path: tuple[str, ...]) -> tuple[str, ...]:
    """The path to a field by the names that it has there; as it is where there is none."""
    if not path or kind.typeName() != "struct":
        return path
    names = field_names(kind)
    places = places_of(path[0], names)
    if len(places) != 1:
        return path
    name = names[places[0]]
    return (name, *_path_in(kind.apply(name).dataType(), path[1:]))


def _type_of(column: JavaObject) -> str:
    """The type of a column, with the names of all fields."""
    return str(column.dataType().catalogString())


def _type_at(kind: JavaObject, path: tuple[str, ...]) -> str:
    for name in path:
        if kind.typeName() != "struct" or name not in field_names(kind):
            return "unknown column"
        kind = kind.apply(name).dataType()
    return str(kind.simpleString())
