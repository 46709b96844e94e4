"""Reads the logical plan of a streaming DataFrame:
its sources and columns, and the delays of its watermarks.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from backfill.api.errors import Problem, UnsupportedProgram
from backfill.planning.plan import StaticInput
from backfill.runtime.catalyst import (
    Catalyst,
    analyzed,
    children_of,
    elements,
    id_of,
    ids_and_names,
    ids_of,
    kind_of,
    nodes_of,
    optimized,
    pruned,
)
from backfill.runtime.source.clock import is_clock, is_source, source_of
from backfill.runtime.source.record_columns import RECORD_COLUMNS
from backfill.runtime.spark_versions import NAMES_SNAPSHOTS

_DELAY, _SESSION = "spark.watermarkDelayMs", "spark.sessionWindow"
BY_REFERENCE = frozenset(
    {
        "Aggregate",
        "ArrowEvalPython",
        "BatchEvalPython",
        "CollectMetrics",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "EventTimeWatermark",
        "Expand",
        "Filter",
        "Generate",
        "GlobalLimit",
        "Join",
        "LocalLimit",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "Sort",
        "Window",
    }
)
"""Nodes whose result depends only on those of their children's columns that they refer to, or pass
on by their ids.
"""
HAND_ON_COLUMNS = frozenset(
    {
        "CollectMetrics",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "SubqueryAlias",
        "View",
    }
)
"""Nodes that pass on all rows of their child with all its columns, and add nothing to them."""
STATE_OF_ONE_CHILD = frozenset(
    {"Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct"}
)
"""Nodes over one stream that keep rows to compare them with others."""

_MAY_READ_TABLES = re.compile(r"RelationV2|\d more characters$|^Truncated plan of ")
"""What a plan's text says where it reads a table of a catalog, or where a program has Spark cut it
off: with ``spark.sql.maxPlanStringLength``.
"""
_PRESENT = "main"
"""The branch of Iceberg with a table's present rows."""
_CHOICES = ("end-snapshot-id", "timestampAsOf", "versionAsOf")
"""Options of a read that determine its rows, besides those that Iceberg makes a snapshot of."""
_SELECTOR = re.compile(r"(at_timestamp|snapshot_id|tag)_")
"""What Iceberg takes after a table's name, as in ``db.table.tag_old``."""
_AT_ONCE = {"Cross", "Inner", "LeftSemi"}
"""Joins of streams whose results no further row can change."""


def sources_read(frame: DataFrame) -> set[str]:
    """Names of the sources that a query of this frame reads.

    Raises:
        UnsupportedProgram: it streams from something else, too.
    """
    names, others = set(), []
    for node in nodes_of(analyzed(frame)):
        if is_source(node):
            names.add(source_of(node))
        elif not children_of(node) and node.isStreaming() and not is_clock(node):
            others.append(
                Problem(
                    "",
                    f"a query streams from {node.simpleStringWithNodeId()}",
                    "read it through readStream",
                )
            )
    if others:
        raise UnsupportedProgram(others)
    return names


def check_static_tables(frame: DataFrame, tables: Iterable[StaticInput]) -> None:
    """Checks that Spark does not read static tables of the plan by itself, unless the program
    chooses their rows. It would read the present ones, even where the snapshot is that of the plan:
    from Spark 4.1 on, a DataFrame reads a newer one as soon as there is one.

    Raises:
        UnsupportedProgram: it does.
    """
    by_identity = {key: each for each in tables for key in (each.table_uuid, each.table)}
    # one call of the JVM for the text, for batches of functions which mostly read no such table
    if not by_identity or not _MAY_READ_TABLES.search(analyzed(frame).toString()):
        return
    for node in nodes_of(analyzed(frame)):
        if kind_of(node) != "DataSourceV2Relation" or kind_of(node.table()) != "SparkTable":
            continue
        table = node.table().table()
        # by its name, too, since a table that was dropped and created again has another UUID
        static = by_identity.get(str(table.uuid())) or by_identity.get(str(table.name()))
        if static is not None and not _chooses_rows(node):
            problem = Problem(
                "spec.staticTables",
                f"the application reads {static.table} through Spark's own catalog, as it is now"
                " and not in the snapshot of the plan, because its name is in a view, a function or"
                " an expression, or it is read with options",
                "read it with spark.table or in the text of spark.sql, without options; or remove"
                " it from spec.staticTables, to read it as it is when the attempt starts",
            )
            raise UnsupportedProgram(problem)


def _chooses_rows(relation: JavaObject) -> bool:
    """Whether a program names the snapshot that it reads of an Iceberg table, or a branch other
    than the one with the present rows.
    """
    table, options = relation.table(), relation.options()
    if table.branch() is not None:
        return bool(table.branch() != _PRESENT)
    if any(map(options.containsKey, _CHOICES)):
        return True
    if NAMES_SNAPSHOTS:
        return table.snapshotId() is not None
    name = str(relation.identifier().get().name())
    own = str(table.table().name()).endswith(name)  # as that of a table named tag_names
    return relation.timeTravelSpec().isDefined() or bool(_SELECTOR.match(name) and not own)


def drops_within_watermark(frame: DataFrame) -> bool:
    """Whether ``dropDuplicatesWithinWatermark`` is anywhere in the frame, by keys that may recur at
    other event times.
    """
    return any(
        kind_of(node) == "DeduplicateWithinWatermark"
        and _ids(node.keys()).isdisjoint(id_of(time) for time, _ in event_times(node.child()))
        for node in nodes_of(analyzed(frame))
    )


def gives_at_once(plan: JavaObject) -> bool:
    """Whether no result can change by more rows, so that a stream gives it when its rows are there
    and nothing is ever open.
    """
    return not any(
        node.isStreaming()
        and (
            kind_of(node) in {"Aggregate", "Distinct"}
            or "WithState" in kind_of(node)
            or (_joins_streams(node) and node.joinType().toString() not in _AT_ONCE)
        )
        for node in nodes_of(plan)
    )


def keeps_state_in_one_partition(frame: DataFrame) -> bool:
    """Whether an operator of the frame has the state of all rows in one partition, however many
    there are: an aggregation without keys, or a limit.
    """
    return any(
        node.isStreaming()
        and (
            kind_of(node) == "GlobalLimit"
            or (kind_of(node) == "Aggregate" and node.groupingExpressions().isEmpty())
        )
        for node in nodes_of(analyzed(frame))
    )


def divides_into_ranges(frame: DataFrame) -> bool:
    """Whether rows are divided by ranges of their values, for which Spark reads a sample first."""
    return any(
        (kind_of(node) == "Sort" and getattr(node, "global")())
        or (
            kind_of(node) == "RepartitionByExpression"
            and any(kind_of(each) == "SortOrder" for each in elements(node.partitionExpressions()))
        )
        for node in nodes_of(analyzed(frame))
    )


def watermark_delay_us(frame: DataFrame) -> int:
    """The longest delay of the frame's watermarks, in microseconds; 0 without a watermark."""
    watermarks = [
        node for node in nodes_of(analyzed(frame)) if node.nodeName() == "EventTimeWatermark"
    ]
    return max((1_000 * int(node.getDelayMs(node.delay())) for node in watermarks), default=0)


def late_after_us(frame: DataFrame, output_mode: str) -> int | None:
    """The delay after which an operator with state drops rows as late, in microseconds; None if
    none does. Of several watermarks it is the longest delay, as the slowest decides.
    """
    nodes = [node for node in nodes_of(analyzed(frame)) if node.isStreaming()]
    drops = output_mode.lower() != "complete" and any(map(_drops_late, nodes))
    return watermark_delay_us(frame) if drops and any(map(event_times, nodes)) else None


def _drops_late(node: JavaObject) -> bool:
    """Whether a node drops rows behind the watermark, as it removes state by it."""
    kind = kind_of(node)
    if kind == "Aggregate":
        keys = elements(node.groupingExpressions())
        return any(is_event_time(key) or is_session_window(key) for key in keys)
    if kind == "Distinct":
        return bool(event_times(node))
    if kind == "Deduplicate":
        return any(map(is_event_time, elements(node.keys())))
    if "WithState" in kind:
        of = node.timeMode() if kind.startswith("TransformWithState") else node.timeout()
        return "EventTime" in str(of.toString())
    return kind == "DeduplicateWithinWatermark" or _joins_streams(node)


def _joins_streams(node: JavaObject) -> bool:
    return kind_of(node) == "Join" and all(side.isStreaming() for side in children_of(node))


def keeps_state(frame: DataFrame) -> bool:
    """Whether a result of the frame may depend on rows of several micro-batches."""
    return any(
        node.isStreaming()
        and (
            kind_of(node) in {"Aggregate", "Distinct", "GlobalLimit"}
            or kind_of(node).startswith("Deduplicate")
            or "WithState" in kind_of(node)
            or _joins_streams(node)
        )
        for node in nodes_of(analyzed(frame))
    )


def closing_delay_us(frame: DataFrame) -> int:
    """How long after the end of a time window events must happen for the frame's aggregations to
    close it, in microseconds: the watermarks' delay, and how long joins before an aggregation keep
    rows, since Spark passes on a watermark that is so much behind (SPARK-42376).
    """
    spark = frame.sparkSession
    catalyst, plan = Catalyst(spark), pruned(analyzed(frame), spark)
    behind = (
        _behind_us(node.child(), catalyst)
        for node in nodes_of(plan)
        if node.isStreaming() and kind_of(node) in {"Aggregate", "Distinct"}
    )
    return watermark_delay_us(frame) + max(behind, default=0)


def _behind_us(node: JavaObject, catalyst: Catalyst) -> int:
    """How much joins hold back the watermark that a node passes on."""
    below = [each for each in children_of(node) if each.isStreaming()]
    behind = max((_behind_us(each, catalyst) for each in below), default=0)
    if kind_of(node) != "Join" or len(below) < 2:
        return behind
    found = catalyst.equal_keys(node)
    if found is None or any(is_event_time(each) for pair in found[0] for each in pair):
        return behind
    left, right = below
    kept = (
        kept_before_watermark_ms(*sides, found[1], catalyst)
        for sides in ((left, right), (right, left))
    )
    return behind + 1_000 * max(0, *(each or 0 for each in kept))


def kept_before_watermark_ms(
    side: JavaObject, other: JavaObject, condition: JavaObject, catalyst: Catalyst
) -> int | None:
    """How long before the watermark rows of one side of a join must have happened for Spark to
    remove them, by the join's condition on event times; None if it never does.
    """
    mine, others = ([each for each, _ in event_times(each)] for each in (side, other))
    if not mine or not others:
        return None
    return catalyst.kept_before_watermark_ms(side, others, condition)


def columns_used(frame: DataFrame) -> dict[str, set[str]]:
    """By source, the top-level columns whose values affect a query of this frame.

    They are followed from the query's result to its sources through the optimized plan. Below a
    node of an unknown kind, every column counts. For Spark, every column of a source with a given
    schema may be null, so the others can be read as nulls.
    """
    return columns_used_by(analyzed(frame), frame.sparkSession)


def columns_used_by(plan: JavaObject, spark: SparkSession) -> dict[str, set[str]]:
    """The same for an analyzed plan in a session."""
    used: dict[str, set[str]] = {}
    found: Counter[str] = Counter()
    for relation, wanted in _wanted_of_sources(optimized(plan, spark)):
        columns = {name for number, name in ids_and_names(relation.output()) if number in wanted}
        used.setdefault(source_of(relation), set()).update(columns)
        found[source_of(relation)] += 1
    relations = [node for node in nodes_of(plan) if is_source(node)]
    lost = Counter(source_of(relation) for relation in relations) - found
    for relation in relations:
        if source_of(relation) in lost:  # optimized away, or moved to where it was not followed
            columns = {name for _, name in ids_and_names(relation.output())}
            used.setdefault(source_of(relation), set()).update(columns)
    return used


def _wanted_of_sources(root: JavaObject) -> Iterator[tuple[JavaObject, set[int]]]:
    """The sources below a node, each with the ids of
    the columns that the node's output depends on.
    """
    pending = [(root, _ids(root.output()))]
    while pending:
        node, wanted = pending.pop()
        if is_source(node):
            yield node, wanted
            continue
        inner = elements(node.subqueries())
        children = children_of(node)
        below = (
            [_ids(child.output()) for child in children]
            if inner
            else _wanted_of_children(node, children, wanted)
        )
        pending += [
            *zip(children, below, strict=True),
            *((plan, _ids(plan.output())) for plan in inner),
        ]


def _wanted_of_children(
    node: JavaObject, children: list[JavaObject], wanted: set[int]
) -> list[set[int]]:
    """The columns that a node needs of each child for the wanted part of its output."""
    kind = kind_of(node)
    if kind == "Union":  # by position; its own ids are those of its first child
        here = ids_of(node.output())
        return [
            {
                below
                for number, below in zip(here, ids_of(child.output()), strict=True)
                if number in wanted
            }
            for child in children
        ]
    if kind == "Project":
        given = ids_of(node.output())
        if wanted.issuperset(given):
            return [_ids(node.references())]
        columns = (node.projectList().apply(at) for at, each in enumerate(given) if each in wanted)
        return [{each for column in columns for each in _ids(column.references())}]
    if kind in BY_REFERENCE:
        needed = wanted | _ids(node.references())
        return [needed & _ids(child.output()) for child in children]
    named = {name for number, name in ids_and_names(node.output()) if number in wanted}
    return [_ids(child.output()) - _record_columns_but(child, named) for child in children]


def _record_columns_but(plan: JavaObject, named: set[str]) -> set[int]:
    """Ids of the Kafka columns that the source makes, except the named ones. No program sees these
    names, so what passes them on is this product's own and does not use them.
    """
    return {
        number
        for number, name in ids_and_names(plan.output())
        if name in RECORD_COLUMNS and name not in named
    }


def event_times(node: JavaObject) -> list[tuple[JavaObject, int]]:
    """The columns of a node's output that are event times, with their watermarks' delays in
    microseconds.
    """
    return [
        (column, 1_000 * int(column.metadata().getLong(_DELAY)))
        for column in elements(node.output())
        if column.metadata().contains(_DELAY)
    ]


def is_event_time(expression: JavaObject) -> bool:
    """Whether an expression is a column that is an event time."""
    column = kind_of(expression) == "AttributeReference"
    return bool(column and expression.metadata().contains(_DELAY))


def session_window(node: JavaObject) -> JavaObject | None:
    """The session window by which an aggregation groups, if it does."""
    if kind_of(node) != "Aggregate":
        return None
    return next(filter(is_session_window, elements(node.groupingExpressions())), None)


def is_session_window(expression: JavaObject) -> bool:
    """Whether an expression is a column of session windows: those that a batch job groups by it are
    merged where they overlap.
    """
    column = kind_of(expression) == "AttributeReference"
    return bool(column and expression.metadata().contains(_SESSION))


def _ids(attributes: JavaObject) -> set[int]:
    return set(ids_of(attributes))
