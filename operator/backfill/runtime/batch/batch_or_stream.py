"""Whether a query is run by spans or as a stream: as the resource says; if it says ``Auto``, by
spans where what results depend on has bounds in time and it can be measured when it arrived. Later
attempts continue as the first one began.
"""

import logging
import re
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from backfill.api.errors import Problem, UnsupportedProgram, first_line
from backfill.api.spec import Execution, OrderingPolicy
from backfill.api.status import ChangingMode
from backfill.outputs.staging import Holds
from backfill.planning.plan import PlanHeader
from backfill.runtime.batch.look_back import analyze
from backfill.runtime.batch.measure_arrivals import hiding_nodes
from backfill.runtime.batch.prepare_query import SpanOutput, depends_on_arrival
from backfill.runtime.batch.spark_compatibility import unusable
from backfill.runtime.batch.time_reach import Bounded, Unbounded
from backfill.runtime.catalyst import analyzed, kind_of, nodes_of

_STRICT = "ordering.policy Strict requires rows in the order of their offsets"
_BEGUN = "an earlier attempt started it in Streaming execution"
_CHANGING: dict[Holds, ChangingMode] = {"Changes": "update", "Result": "complete"}
_CHANGE_ROWS = ("Aggregate", "Distinct", "WithState")
"""What names of nodes contain that may give rows again: aggregations, also that of ``SELECT
DISTINCT`` and ``UNION``, and state of the program's own (``FlatMapGroupsWithState``,
``TransformWithState`` and their Python kin).
"""

_EXPRESSION_ID = re.compile(r"(?<=\w)#\d+L?\b")
"""What Spark adds to the names of columns."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Choice:
    """How a query is run."""

    found: Bounded | None
    """What its results depend on; None for a stream."""
    reason: str = ""
    """Why it is a stream although the resource leaves the choice."""
    holds: Holds = "Rows"
    """What a micro-batch of the stream gives."""

    @property
    def output_mode(self) -> ChangingMode | None:
        """The output mode of a stream that changes rows it has written."""
        return _CHANGING.get(self.holds)


def choose(
    execution: Execution,
    frame: DataFrame,
    target: SpanOutput,
    header: PlanHeader,
    *,
    streamed_steps: int,
    output_mode: str = "append",
) -> Choice:
    """How the query of a streaming DataFrame is run. ``streamed_steps`` are those that it has
    committed as a stream.

    Spans write final rows, whatever the output mode is. A stream writes rows that are not final in
    another one than append: of those the result has the newest of each key, or the last batch's.

    Raises:
        UnsupportedProgram: it must be run by spans, and cannot be, or not now; or it changes rows
            that nothing identifies.
    """
    choice = _by_plan(execution, frame, target, header, streamed_steps)
    mode = output_mode.lower()
    if choice.found is not None or mode == "append":
        return choice
    if mode == "complete":
        return replace(choice, holds="Result")
    if target.output.keys:
        return replace(choice, holds="Changes")
    if changes_rows(frame):
        raise _no_keys(target, output_mode, choice.reason or "spec.execution is Streaming")
    return choice


def changes_rows(frame: DataFrame) -> bool:
    """Whether a query gives rows that it may change or repeat later, in output mode update: it
    aggregates, or it keeps state of its own.
    """
    return any(
        node.isStreaming() and any(word in kind_of(node) for word in _CHANGE_ROWS)
        for node in nodes_of(analyzed(frame))
    )


def _by_plan(
    execution: Execution,
    frame: DataFrame,
    target: SpanOutput,
    header: PlanHeader,
    streamed_steps: int,
) -> Choice:
    if execution == "Streaming":
        return Choice(None)
    begun = streamed_steps > 0 or target.staged is not None
    by_spans = _begun_by_spans(target)
    if execution == "Auto" and header.inputs.policy is OrderingPolicy.STRICT:
        return Choice(None, _STRICT)
    found = _analyzed(frame, target, header, execution)
    if isinstance(found, Bounded):
        if execution == "Batch" or by_spans:
            return Choice(found)
        reason = _BEGUN if begun else _why_uncertain(frame, found, header)
        return Choice(None, reason) if reason else Choice(found)
    if execution == "Batch":
        raise _refused(target, found.reason)
    if by_spans:
        raise _changed(target, found.reason)
    return Choice(None, found.reason)


def _begun_by_spans(target: SpanOutput) -> bool:
    return target.staged is not None and target.staged.execution == "Batch"


def _analyzed(
    frame: DataFrame, target: SpanOutput, header: PlanHeader, execution: Execution
) -> Bounded | Unbounded:
    """What the results depend on.

    Raises:
        UnsupportedProgram: it is not known now, and the query cannot be a stream. It may be known
            in the next attempt.
    """
    if (reason := unusable(frame.sparkSession)) is not None:
        if _begun_by_spans(target):  # so an earlier attempt could
            raise _failed(target, reason)
        return Unbounded(reason)
    try:
        found = analyze(frame, target.output.timestamp_column, header.inputs.arrival_columns)
    except Exception as error:  # no program fails for what only its speed depends on
        _log.exception("the logical plan of the query %s could not be analysed", target.query)
        reason = f"its logical plan could not be analysed ({type(error).__name__})"
        if execution == "Batch" or _begun_by_spans(target):
            raise _failed(target, f"{reason}: {first_line(error)}") from error
        return Unbounded(reason)
    if isinstance(found, Unbounded):
        return Unbounded(_EXPRESSION_ID.sub("", found.reason))
    return found


def _why_uncertain(frame: DataFrame, found: Bounded, header: PlanHeader) -> str:
    """Why it is not certain that spans read all rows that results depend on; empty if it is."""
    if not depends_on_arrival(found, header):
        return ""
    return "; ".join(
        f"{node} before the watermark of {source} hides when its rows arrived, so batch jobs could"
        " lose late rows unnoticed"
        for source, node in sorted(hiding_nodes(analyzed(frame)).items())
    )


def _no_keys(target: SpanOutput, output_mode: str, reason: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "spec.outputs",
            f"the query {target.query} runs in Streaming execution ({reason}), and output mode"
            f" {output_mode} writes a row again whenever it changes; without keys, it is unknown"
            f" which rows of output {target.output.name} are versions of the same row",
            f"list the columns that identify a row in keys of the output {target.output.name}",
        )
    )


def _refused(target: SpanOutput, reason: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "spec.execution",
            f'"Batch" is not possible for the query {target.query}: {reason}',
            "use Streaming or Auto",
        )
    )


def _failed(target: SpanOutput, reason: str) -> UnsupportedProgram:
    message = f"the query {target.query} cannot be run as batch jobs: {reason}"
    return UnsupportedProgram(Problem("", message, may_pass=True))


def _changed(target: SpanOutput, reason: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "",
            f"the query {target.query} has committed steps as batch jobs, but can no longer run"
            f" this way: {reason}",
            "use the program version that the run started with, or create another Backfill",
        )
    )
