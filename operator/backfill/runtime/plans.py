"""What a streaming DataFrame's logical plan says: which sources it reads and how long its watermarks wait."""

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
    for node in _nodes(frame):
        if node.children().isEmpty() and node.isStreaming():
            if node.getClass().getSimpleName() == "StreamingRelationV2" and node.sourceName() == SOURCE_FORMAT:
                names.add(str(node.extraOptions().get("source")))
            else:
                others.append(Problem("", f"a query streams from {node.simpleStringWithNodeId()}", "read it through readStream"))
    if others:
        raise UnsupportedProgram(others)
    return names


def watermark_delay_us(frame: DataFrame) -> int:
    """The longest delay of the frame's watermarks, in microseconds; 0 without a watermark."""
    watermarks = [node for node in _nodes(frame) if node.nodeName() == "EventTimeWatermark"]
    return max((1_000 * int(node.getDelayMs(node.delay())) for node in watermarks), default=0)


def has_outer_join(frame: DataFrame) -> bool:
    """Whether it joins streams so that rows without a partner are given out once none can come any more."""
    joins = (node for node in _nodes(frame) if node.nodeName() == "Join")
    return any(
        "Outer" in node.joinType().toString() and node.left().isStreaming() and node.right().isStreaming() for node in joins
    )


def _nodes(frame: DataFrame) -> Iterator[JavaObject]:
    pending = [frame._jdf.queryExecution().analyzed()]
    while pending:
        node = pending.pop()
        yield node
        children = node.children()
        pending += [children.apply(index) for index in range(children.size())]
