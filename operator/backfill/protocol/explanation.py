"""What a driver that runs nothing has found out about the queries of an application."""

from typing import Literal

from backfill.api.base import Message, Model
from backfill.api.status import ChangingMode, HowRun

EXPLANATION_FILE = "explanation.json"
"""File with the explanation, in the channel's directory."""
NOT_COMPARED = (
    "results that two adjacent batch jobs both compute are not compared, since Python functions,"
    " random values or the order of rows decide which results exist"
)
FIRST_OF_MANY = (
    "in Batch execution, dropDuplicatesWithinWatermark drops rows for as long as their keys recur"
    " within the watermark delay, while a stream keeps one row each time the delay has passed: if"
    " keys recur for longer than the delay, set execution: Streaming"
)


class ExplainedQuery(Model):
    """One query, as it would be run."""

    query: str
    """Name of the query."""
    output: str
    """Name of the output that it writes; empty if a function of the application writes its batches
    (``foreachBatch``), to whichever outputs.
    """
    execution: HowRun
    """How it would be run."""
    execution_reason: str = ""
    """Why as a stream although ``Batch`` would be allowed; otherwise empty."""
    output_mode: ChangingMode | None = None
    """Its output mode, if it is a stream that changes rows it has written."""
    look_back_seconds: float | None = None
    """How far before its own time a result depends on rows, in seconds; null if there is no bound
    or if it is unknown.
    """
    look_ahead_seconds: float | None = None
    """How long after its own time rows may arrive that a result depends on or, in a stream, that
    close it, in seconds; null if there is no bound or if it is unknown.
    """
    compared: bool | None = None
    """Whether results that two batch jobs compute are compared; null for a stream, and where each
    result depends on one row.
    """
    drops_within_watermark: bool = False
    """Whether batch jobs drop its duplicates within the watermark, which differs from a stream if
    keys recur for longer than the delay.
    """
    warnings: tuple[Message, ...] = ()
    """What may be wrong in its result without being noticed."""
    reads: dict[str, tuple[str, ...]]
    """By source, the columns that it reads."""


class Explanation(Model):
    """All queries of an application, or why there is no answer."""

    queries: tuple[ExplainedQuery, ...] = ()
    """The queries, in the order in which they start."""
    reason: Literal["", "UnsupportedProgram", "ProgramFailed", "ApplicationFailed"] = ""
    """Why there is no answer, in one CamelCase word; otherwise empty."""
    message: Message = ""
    """The same in words, with a line for each problem."""
