"""Runs the application's main program until all outputs have a query, and says how each would be
run, for ``python -m backfill.runtime.explain``. No query starts: nothing is read or written.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from backfill.protocol.atomic_files import replace_file
from backfill.protocol.explanation import EXPLANATION_FILE, ExplainedQuery, Explanation
from backfill.runtime.batch.batch_or_stream import stream_traits
from backfill.runtime.batch.overlap_check import compared_columns
from backfill.runtime.batch.prepare_query import traits
from backfill.runtime.batch.straight_json import without_json
from backfill.runtime.catalyst import analyzed
from backfill.runtime.launch import log_to_stderr, prepare, run_application
from backfill.runtime.queries.logical_plan import (
    columns_used_by,
    drops_within_watermark,
    keeps_state,
)
from backfill.runtime.queries.run_state import FINISHED, Run, StartedQuery, unsupported
from backfill.runtime.settings import settings_from_environment
from backfill.runtime.sink import SinkWriter
from backfill.runtime.switching.install import install
from backfill.runtime.switching.query_handle import BatchQuery
from backfill.runtime.switching.stream_writer import (
    Captured,
    CapturedDelivery,
    CapturedFunction,
    SwitchedWriter,
)

_LOOK_SECONDS = 0.1


class ExplainingWriter(SwitchedWriter):
    """A stream writer whose query is explained instead of started."""

    def __init__(
        self,
        frame: DataFrame,
        run: Run,
        listen: Callable[[DataFrame], None],
        explained: list[ExplainedQuery],
    ):
        """Adds its query to ``explained``."""
        super().__init__(frame, run, listen)
        self._explained = explained

    def _staged(self, writer: SinkWriter) -> None:
        """Nothing: what a run has staged belongs to its own plan."""

    def _begin(self, query: Captured) -> StreamingQuery:
        found, used, compared = query.choice.found, query.used, None
        if found is not None:
            spark, time = self._df.sparkSession, query.target.output.timestamp_column
            plan = without_json(analyzed(self._df), spark)
            used = columns_used_by(plan, spark)  # of records, only the columns that are parsed
            if not found.stateless and time is not None:
                compared = bool(compared_columns(spark, plan, time))
        known = (
            stream_traits(self._df, query.choice) if found is None else traits(found, query.header)
        )
        self._explained.append(
            ExplainedQuery(
                query=query.target.query,
                output=query.target.output.name,
                execution="Streaming" if found is None else "Batch",
                execution_reason=known.reason,
                output_mode=known.output_mode,
                look_back_seconds=known.look_back_seconds,
                look_ahead_seconds=known.look_ahead_seconds,
                compared=compared,
                drops_within_watermark=found is not None and drops_within_watermark(self._df),
                warnings=tuple(self._warnings() if found is None else self._doubtful_times),
                reads={source: tuple(sorted(columns)) for source, columns in sorted(used.items())},
            )
        )
        name, output = query.target.query, query.target.output.name
        self._run.tracker.add(name, output, dict.fromkeys(query.used, 0), known)
        return self._shown(name, output)

    def _begin_function(self, query: CapturedFunction) -> StreamingQuery:
        reach = None if keeps_state(self._df) else 0
        self._explained.append(
            ExplainedQuery(
                query=query.name,
                output="",
                execution="Streaming",
                execution_reason=query.traits.reason,
                look_back_seconds=reach,
                look_ahead_seconds=reach,
                warnings=tuple(self._warnings()),
                reads={
                    source: tuple(sorted(found)) for source, found in sorted(query.used.items())
                },
            )
        )
        self._run.tracker.add_function(query.name, dict.fromkeys(query.used, 0), query.traits, ())
        return self._shown(query.name, None)

    def _begin_delivered(self, query: CapturedDelivery) -> StreamingQuery:
        known, name, output = stream_traits(self._df, query.choice), query.name, query.output.name
        self._explained.append(
            ExplainedQuery(
                query=name,
                output=output,
                execution="Streaming",
                execution_reason=known.reason,
                look_back_seconds=known.look_back_seconds,
                look_ahead_seconds=known.look_ahead_seconds,
                warnings=tuple(self._warnings()),
                reads={source: tuple(sorted(used)) for source, used in sorted(query.used.items())},
            )
        )
        self._run.tracker.add(name, output, dict.fromkeys(query.used, 0), known)
        return self._shown(name, output)

    def _shown(self, name: str, output: str | None) -> StreamingQuery:
        # nothing is read, so that nothing keeps the program from starting the next query
        ends = self._target.ends
        view = BatchQuery(self._target.query_name, self._run, lambda: True, ends=ends)
        self._run.started(StartedQuery(name, output, "", _Idle(), self._df, view))
        return view


class _Idle:
    """A handle of a query that does nothing."""

    @property
    def isActive(self) -> bool:
        """Always."""
        return True

    def stop(self) -> None:
        """Does nothing."""

    def exception(self) -> None:
        """No error."""


def main() -> None:
    """Writes the explanation into the channel's directory and ends the process, whatever the main
    program still does.
    """
    log_to_stderr()
    settings = settings_from_environment()
    run, _ = prepare(settings)
    explained: list[ExplainedQuery] = []
    threading.Thread(target=_watch, args=(run,), name="backfill-explain", daemon=True).start()
    install(
        run,
        lambda: None,
        lambda frame, of_run, listen: ExplainingWriter(frame, of_run, listen, explained),
    )
    threading.Thread(target=_answer, args=(run, explained), name="backfill-answer").start()
    run_application(run)
    run.application_waits()


def _watch(run: Run) -> None:
    """Ends the run once every output has a query and every source is read, or cannot be."""
    while not run.over.wait(_LOOK_SECONDS):
        if run.queries and not run.missing() and not run.may_start_more:
            run.end(FINISHED)
        elif (overdue := run.overdue()) is not None:
            run.end(unsupported(overdue))


def _answer(run: Run, explained: list[ExplainedQuery]) -> None:
    run.over.wait()
    outcome = run.outcome
    assert outcome is not None
    answer = Explanation(queries=tuple(explained))
    if outcome.reason:
        answer = Explanation.model_validate({"reason": outcome.reason, "message": outcome.message})
    file = Path(run.settings.channel) / EXPLANATION_FILE
    replace_file(file, answer.model_dump_json(by_alias=True).encode())
    os._exit(outcome.exit_status)


if __name__ == "__main__":
    # threads of functions of the main module would be taken for the application's
    from backfill.runtime.explain import main as named

    named()
