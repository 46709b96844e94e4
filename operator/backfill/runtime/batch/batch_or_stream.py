"""Whether a query is run by spans or as a stream: as the resource says; if it says ``Auto``, by
spans where what results depend on has bounds in time and it can be measured when it arrived. Later
attempts continue as the first one began.
"""

import logging
import re
from dataclasses import dataclass, field, replace
from datetime import timedelta

from pyspark.sql import DataFrame

from backfill.api.errors import Problem, UnsupportedProgram, first_line
from backfill.api.output import Output
from backfill.api.quantities import format_duration
from backfill.api.spec import Execution, OrderingPolicy
from backfill.api.status import ChangingMode
from backfill.outputs.staging import Holds
from backfill.planning.plan import PlanHeader
from backfill.runtime.batch.look_back import analyze
from backfill.runtime.batch.measure_arrivals import hiding_nodes
from backfill.runtime.batch.prepare_query import SpanOutput, depends_on_arrival, whole_seconds
from backfill.runtime.batch.spark_compatibility import unusable
from backfill.runtime.batch.time_reach import Bounded, Unbounded
from backfill.runtime.catalyst import analyzed, kind_of, nodes_of
from backfill.runtime.queries.clock_dependence import comparison_with_clock
from backfill.runtime.queries.logical_plan import (
    closing_delay_us,
    divides_into_ranges,
    late_after_us,
)
from backfill.runtime.queries.tracker import Traits
from backfill.runtime.spark_versions import COUNTS_SAMPLES

_STRICT = "ordering.policy Strict requires rows in the order of their offsets"
_BEGUN = "an earlier attempt started it in Streaming execution"
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
    reach: Bounded | None = field(default=None, compare=False)
    """What the results of a stream depend on, if that has bounds in time."""
    output_mode: ChangingMode | None = None
    """The output mode of a stream that changes rows it has written."""
    records: bool = False
    """Whether what it changes are further rows: records, each of which a topic has."""

    @property
    def holds(self) -> Holds:
        """What a micro-batch of the stream gives."""
        if self.output_mode is None or self.records:
            return "Rows"
        return "Result" if self.output_mode == "complete" else "Changes"


def choose(
    execution: Execution,
    frame: DataFrame,
    target: SpanOutput,
    header: PlanHeader,
    *,
    streamed_steps: int,
    output_mode: str = "append",
    records: bool = False,
) -> Choice:
    """How the query of a streaming DataFrame is run. ``streamed_steps`` are those that it has
    committed as a stream, ``records`` is whether it sends records to Kafka.

    Spans write final rows, whatever the output mode is. A stream writes rows that are not final in
    another one than append: of those the result has the newest of each key, or the last batch's;
    without keys all records, as the topic.

    Raises:
        UnsupportedProgram: it must be run by spans, and cannot be, or not now; or it changes rows
            that nothing identifies.
    """
    choice = _by_plan(execution, frame, target, header, streamed_steps)
    mode = output_mode.lower()
    if choice.found is not None or mode == "append":
        return choice
    if mode == "complete":
        return replace(choice, output_mode="complete")
    if target.output.keys:
        return replace(choice, output_mode="update")
    if changes_rows(frame):
        if records:
            return replace(choice, output_mode="update", records=True)
        raise _no_keys(target, output_mode, choice.reason or "spec.execution is Streaming")
    return choice


def streamed(
    frame: DataFrame, query: str, output: Output, header: PlanHeader, reason: str
) -> Choice:
    """How a query is run that is a stream for another reason than its plan."""
    return Choice(None, reason, reach=_reach(frame, query, output, header))


def stream_traits(frame: DataFrame, choice: Choice) -> Traits:
    """What is known of a query that is run as a stream."""
    traits = Traits(
        comparison_with_clock(frame),
        "Streaming",
        choice.reason,
        choice.output_mode,
        counted_by_spark=not (COUNTS_SAMPLES and divides_into_ranges(frame)),
    )
    if choice.reach is None:
        return traits
    sources = choice.reach.sources.values()
    if choice.reach.stateless:
        return replace(traits, look_back_seconds=0, look_ahead_seconds=0)
    of_time = min(sources, key=lambda each: each.back_us + each.ahead_us)
    ahead = (each.ahead_us + each.delay_us for each in sources)
    return replace(
        traits,
        look_back_seconds=whole_seconds(each.back_us for each in sources),
        look_ahead_seconds=whole_seconds((*ahead, of_time.ahead_us + closing_delay_us(frame))),
    )


def order_warnings(frame: DataFrame, output_mode: str, header: PlanHeader) -> list[str]:
    """That a stream may drop rows as late which production kept, as its plan reads rows further out
    of order than its watermark waits. Batch jobs read enough to drop only what production did.
    """
    delay_us, disorder_us = late_after_us(frame, output_mode), header.proof.greatest_disorder_us
    if delay_us is None or delay_us >= disorder_us:
        return []
    waits = format_duration(timedelta(microseconds=delay_us))
    smaller = f", or spec.ordering.allowedLateness to less than {waits}" if delay_us else ""
    apart = format_duration(timedelta(seconds=-(-disorder_us // 1_000_000)))
    return [
        f"the watermark delay of {waits} is shorter than the {apart} by which the plan reads rows"
        " out of order, so rows that production kept may be dropped as late: set"
        f" spec.ordering.policy to Exact{smaller}"
    ]


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
        return Choice(None, reach=_reach(frame, target.query, target.output, header))
    begun = streamed_steps > 0 or target.staged is not None
    by_spans = _begun_by_spans(target)
    if execution == "Auto" and header.inputs.policy is OrderingPolicy.STRICT:
        return Choice(None, _STRICT, reach=_reach(frame, target.query, target.output, header))
    found = _analyzed(frame, target, header, execution)
    if isinstance(found, Bounded):
        if execution == "Batch" or by_spans:
            return Choice(found)
        reason = _BEGUN if begun else _why_uncertain(frame, found, header)
        return Choice(None, reason, reach=found) if reason else Choice(found)
    if execution == "Batch":
        raise _refused(target, found)
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
        reason = _not_analyzed(target.query, error)
        if execution == "Batch" or _begun_by_spans(target):
            raise _failed(target, f"{reason}: {first_line(error)}") from error
        return Unbounded(reason)
    if isinstance(found, Unbounded):
        return replace(found, reason=_EXPRESSION_ID.sub("", found.reason))
    return found


def _reach(frame: DataFrame, query: str, output: Output, header: PlanHeader) -> Bounded | None:
    """What the results of a query depend on that is a stream whatever that is; None if it has no
    bounds in time, or if they are unknown.
    """
    try:
        found = analyze(frame, output.timestamp_column, header.inputs.arrival_columns)
    except Exception as error:  # no program fails for what only warnings depend on
        _not_analyzed(query, error)
        return None
    return found if isinstance(found, Bounded) else None


def _not_analyzed(query: str, error: Exception) -> str:
    _log.error("the logical plan of the query %s could not be analysed", query, exc_info=error)
    return f"its logical plan could not be analysed ({type(error).__name__})"


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


def _refused(target: SpanOutput, found: Unbounded) -> UnsupportedProgram:
    message = f'"Batch" is not possible for the query {target.query}: {found.reason}'
    field, fix = "spec.execution", "use Streaming or Auto"
    if found.lacks_time:
        field = f"spec.outputs[{target.place}].timestampColumn"
        fix = f"set it to the column of {target.output.table} with the time of a result, or {fix}"
    return UnsupportedProgram(Problem(field, message, fix))


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
