"""What a streaming DataFrame's logical plan says: what it reads of which sources, and how long its watermarks wait."""

from collections.abc import Iterator

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from backfill.api.errors import Problem, UnsupportedProgram
from backfill.runtime.source import FORMAT as SOURCE_FORMAT


def sources_read(frame: DataFrame) -> set[str]:
    """The names of the sources a query of this frame reads.

    Raises:
        UnsupportedProgram: it also streams from something else.
    """
    names, others = set(), []
    for node in _nodes(_analyzed(frame)):
        if node.children().isEmpty() and node.isStreaming():
            if _is_source(node):
                names.add(_source_of(node))
            else:
                others.append(Problem("", f"a query streams from {node.simpleStringWithNodeId()}", "read it through readStream"))
    if others:
        raise UnsupportedProgram(others)
    return names


def watermark_delay_us(frame: DataFrame) -> int:
    """The longest delay of the frame's watermarks, in microseconds; 0 without a watermark."""
    watermarks = [node for node in _nodes(_analyzed(frame)) if node.nodeName() == "EventTimeWatermark"]
    return max((1_000 * int(node.getDelayMs(node.delay())) for node in watermarks), default=0)


def has_outer_join(frame: DataFrame) -> bool:
    """Whether it joins streams so that rows without a partner are given out once none can come any more."""
    joins = (node for node in _nodes(_analyzed(frame)) if node.nodeName() == "Join")
    return any(
        "Outer" in node.joinType().toString() and node.left().isStreaming() and node.right().isStreaming() for node in joins
    )


def columns_used(frame: DataFrame) -> dict[str, set[str]]:
    """The top-level columns that a query of this frame can tell from nulls, by source.

    What the optimized plan neither refers to nor gives out is left over. Spark takes every column of a source whose schema is
    given as one that may be null, so nulls can stand there.
    """
    optimized = frame.sparkSession._jsparkSession.sessionState().optimizer().execute(_analyzed(frame))
    relations, referred = [], _ids(optimized.outputSet())
    for node in _nodes(optimized):
        if _is_source(node):
            relations.append(node)
        else:
            referred |= _ids(node.references())
    used: dict[str, set[str]] = {}
    for relation in relations:
        columns = (column for column in _elements(relation.output()) if _id(column) in referred)
        used.setdefault(_source_of(relation), set()).update(str(column.name()) for column in columns)
    return used


def _is_source(node: JavaObject) -> bool:
    return bool(node.getClass().getSimpleName() == "StreamingRelationV2" and node.sourceName() == SOURCE_FORMAT)


def _source_of(relation: JavaObject) -> str:
    return str(relation.extraOptions().get("source"))


def _ids(attributes: JavaObject) -> set[int]:
    return {_id(attribute) for attribute in _elements(attributes.toSeq())}


def _id(attribute: JavaObject) -> int:
    return int(attribute.exprId().id())


def _elements(sequence: JavaObject) -> list[JavaObject]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _analyzed(frame: DataFrame) -> JavaObject:
    return frame._jdf.queryExecution().analyzed()


def _nodes(plan: JavaObject) -> Iterator[JavaObject]:
    pending = [plan]
    while pending:
        node = pending.pop()
        yield node
        pending += _elements(node.children())
