"""How a query is run: as the resource says; with Auto by spans if it can be, and always as it was
begun.
"""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException

from backfill.api.errors import UnsupportedProgram
from backfill.api.spec import Execution, OrderingPolicy
from backfill.outputs.staging import Holds, Part
from backfill.planning.plan import PlanHeader
from backfill.runtime.batch import batch_or_stream
from backfill.runtime.batch.batch_or_stream import Choice, choose
from backfill.runtime.batch.time_reach import Bounded, Reach, Unbounded
from backfill.runtime.queries.run_state import unsupported
from cases import cases

BOUNDED = Bounded({"impressions": Reach(0, 0, 0, None)})
UNBOUNDED = Unbounded("TransformWithState keeps state of the program's own")
STREAMED, SPANS = (Part(3, execution) for execution in ("Streaming", "Batch"))


class Choosing:
    """A query of which the analysis finds what the test says."""

    def __init__(self, header: PlanHeader, monkeypatch: pytest.MonkeyPatch):
        self.header = header
        self.found: Bounded | Unbounded | Exception = BOUNDED
        monkeypatch.setattr(batch_or_stream, "analyze", self._analyze)
        self.hidden: dict[str, str] = {}
        self.unusable: str | None = None
        monkeypatch.setattr(batch_or_stream, "unusable", lambda _spark: self.unusable)
        monkeypatch.setattr(batch_or_stream, "analyzed", lambda _frame: None)
        monkeypatch.setattr(batch_or_stream, "hiding_nodes", lambda _plan: self.hidden)
        self.changes = True
        monkeypatch.setattr(batch_or_stream, "changes_rows", lambda _frame: self.changes)

    def _analyze(self, *_: object) -> Bounded | Unbounded:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def choose(
        self,
        execution: Execution,
        staged: Part | None = None,
        streamed_steps: int = 0,
        output_mode: str = "append",
        keys: tuple[str, ...] = (),
        *,
        records: bool = False,
    ) -> Choice:
        output = SimpleNamespace(name="out", table="lake.raw.out", timestamp_column="at", keys=keys)
        target: Any = SimpleNamespace(query="q", output=output, place=1, staged=staged)
        frame: Any = SimpleNamespace(sparkSession=None)
        return choose(
            execution,
            frame,
            target,
            self.header,
            streamed_steps=streamed_steps,
            output_mode=output_mode,
            records=records,
        )

    def holds(self, output_mode: str, keys: tuple[str, ...] = ()) -> Holds:
        return self.choose("Streaming", output_mode=output_mode, keys=keys).holds


@pytest.fixture
def choosing(header: PlanHeader, monkeypatch: pytest.MonkeyPatch) -> Choosing:
    return Choosing(header, monkeypatch)


@cases(
    ("execution", "found", "staged", "streamed_steps", "expected"),
    {
        "one with bounds": ("Auto", BOUNDED, None, 0, Choice(BOUNDED)),
        "one without": ("Auto", UNBOUNDED, None, 0, Choice(None, UNBOUNDED.reason)),
        "as the resource says": ("Streaming", BOUNDED, None, 0, Choice(None)),
        "by spans, as the resource says": ("Batch", BOUNDED, None, 0, Choice(BOUNDED)),
        "begun by spans": ("Auto", BOUNDED, SPANS, 0, Choice(BOUNDED)),
        "begun as a stream, by its branch": (
            "Auto",
            BOUNDED,
            STREAMED,
            0,
            Choice(None, "an earlier attempt started it in Streaming execution"),
        ),
        "begun as a stream, and its branch was lost": (
            "Auto",
            BOUNDED,
            None,
            4,
            Choice(None, "an earlier attempt started it in Streaming execution"),
        ),
    },
)
def test_a_query_is_run_by_spans_if_it_can_be_and_was_not_begun_otherwise(
    choosing: Choosing,
    execution: Execution,
    found: Bounded | Unbounded,
    staged: Part | None,
    streamed_steps: int,
    expected: Choice,
) -> None:
    choosing.found = found
    assert choosing.choose(execution, staged, streamed_steps) == expected


@cases(
    ("execution", "staged", "streamed"),
    {
        "where the choice is free": ("Auto", None, True),
        "where the resource says so": ("Batch", None, False),
        "where it began as batch jobs": ("Auto", SPANS, False),
    },
)
def test_rows_of_which_it_is_hidden_when_they_arrived_are_streamed(
    choosing: Choosing, execution: Execution, staged: Part | None, streamed: bool
) -> None:
    choosing.hidden = {"impressions": "MapInArrow"}
    reason = (
        "MapInArrow before the watermark of impressions hides when its rows arrived, so batch"
        " jobs could lose late rows unnoticed"
    )
    expected = Choice(None, reason) if streamed else Choice(BOUNDED)
    assert choosing.choose(execution, staged) == expected


@pytest.mark.parametrize("stateless", [True, False])
def test_nothing_is_hidden_where_results_do_not_depend_on_arrivals(
    choosing: Choosing, stateless: bool
) -> None:
    choosing.hidden = {"impressions": "MapInArrow"}
    (source,) = [each for each in choosing.header.inputs.sources if each.name == "impressions"]
    reach = Reach(0, 0, 0, None if stateless else source.timestamp_column)
    choosing.found = Bounded({"impressions": reach}, stateless=stateless)
    assert choosing.choose("Auto") == Choice(choosing.found)


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_spans_write_final_rows_in_any_output_mode(choosing: Choosing, mode: str) -> None:
    assert choosing.choose("Auto", output_mode=mode) == Choice(BOUNDED)
    assert choosing.choose("Auto", output_mode=mode, keys=("user",)) == Choice(BOUNDED)


def test_a_stream_gives_the_newest_row_of_each_key_or_the_last_batch(choosing: Choosing) -> None:
    assert choosing.holds("Append", keys=("user",)) == "Rows"
    assert choosing.holds("Update", keys=("user",)) == "Changes"
    assert choosing.holds("Complete") == "Result"


def test_rows_that_a_stream_changes_need_keys(choosing: Choosing) -> None:
    with pytest.raises(
        UnsupportedProgram,
        match=(
            r"the query q runs in Streaming execution \(spec.execution is Streaming\), and output mode"
            r" update .* list the columns that identify a row in keys of the output out"
        ),
    ):
        choosing.choose("Streaming", output_mode="update")
    choosing.found = UNBOUNDED
    with pytest.raises(
        UnsupportedProgram, match=r"in Streaming execution \(TransformWith.*mode Update"
    ):
        choosing.choose("Auto", output_mode="Update")
    choosing.changes = False
    assert choosing.choose("Auto", output_mode="Update").holds == "Rows", "as in append mode"


def test_records_for_kafka_need_no_keys_since_the_topic_has_each_of_them(
    choosing: Choosing,
) -> None:
    every = choosing.choose("Streaming", output_mode="Update", records=True)
    assert (every.output_mode, every.holds) == ("update", "Rows")
    last = choosing.choose("Streaming", output_mode="update", keys=("user",), records=True)
    assert (last.output_mode, last.holds) == ("update", "Changes")
    assert choosing.choose("Auto", output_mode="update", records=True) == Choice(BOUNDED)
    choosing.changes = False
    assert choosing.choose("Streaming", output_mode="update", records=True).output_mode is None


def test_columns_are_named_as_the_program_does(choosing: Choosing) -> None:
    choosing.found = Unbounded("Aggregate groups by title#30L, user#7, and no time window")
    assert choosing.choose("Auto").reason == "Aggregate groups by title, user, and no time window"


def test_rows_in_the_order_of_their_offsets_need_a_stream(choosing: Choosing) -> None:
    inputs = choosing.header.inputs.model_copy(update={"policy": OrderingPolicy.STRICT})
    choosing.header = choosing.header.model_copy(update={"inputs": inputs})
    assert choosing.choose("Auto") == Choice(
        None, "ordering.policy Strict requires rows in the order of their offsets"
    )


def test_what_the_resource_demands_and_cannot_be_done_is_refused(choosing: Choosing) -> None:
    choosing.found = UNBOUNDED
    with pytest.raises(
        UnsupportedProgram, match=r"is not possible for the query q: .*; use Streaming"
    ):
        choosing.choose("Batch")


def test_a_query_that_needs_a_time_names_the_field_or_is_a_stream(choosing: Choosing) -> None:
    choosing.found = Unbounded("its output has no timestampColumn", lacks_time=True)
    assert choosing.choose("Auto") == Choice(None, "its output has no timestampColumn")
    with pytest.raises(
        UnsupportedProgram,
        match=(
            r'^spec\.outputs\[1\]\.timestampColumn: "Batch" is not possible for the query q: .*;'
            " set it to the column of lake.raw.out with the time of a result, or use Streaming"
        ),
    ):
        choosing.choose("Batch")


def test_what_was_begun_by_spans_is_never_continued_as_a_stream(choosing: Choosing) -> None:
    choosing.found = UNBOUNDED
    with pytest.raises(UnsupportedProgram, match="can no longer run this way: TransformWith"):
        choosing.choose("Auto", SPANS)


@pytest.mark.parametrize("error", [Py4JError("no such method"), AnalysisException("odd")])
def test_a_plan_that_spark_does_not_let_be_looked_at_is_run_as_a_stream(
    choosing: Choosing, error: Exception
) -> None:
    choosing.found = error
    reason = f"its logical plan could not be analysed ({type(error).__name__})"
    assert choosing.choose("Auto") == Choice(None, reason)


@cases(
    ("execution", "staged"),
    {"of which spans are committed": ("Auto", SPANS), "that must be one": ("Batch", None)},
)
def test_what_is_not_known_of_batch_jobs_may_be_known_in_the_next_attempt(
    choosing: Choosing, execution: Execution, staged: Part | None
) -> None:
    choosing.found = Py4JError("Answer from Java side is empty")
    with pytest.raises(UnsupportedProgram, match=r"\(Py4JError\): Answer from") as failure:
        choosing.choose(execution, staged)
    assert unsupported(failure.value).reason == "ApplicationFailed"


def test_what_spark_does_not_do_now_may_pass_if_it_has_run_spans(choosing: Choosing) -> None:
    choosing.unusable = "batch jobs do not work with Spark 4.3.0: out of memory"
    with pytest.raises(UnsupportedProgram, match="out of memory") as failure:
        choosing.choose("Auto", SPANS)
    assert unsupported(failure.value).exit_status == 1
    with pytest.raises(UnsupportedProgram, match="out of memory") as refusal:
        choosing.choose("Batch")
    assert unsupported(refusal.value).exit_status == 2
