"""Calls a function of ``foreachBatch`` with an empty batch and with a row of nulls, to find out
what it does with them: its writes are noted instead of made, and what a backfill
would refuse is refused here.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from backfill.api.errors import BadInput, Problem, UnsupportedProgram
from backfill.api.spec import Effect
from backfill.protocol.survey_result import SurveyedProblem, SurveyedQuery, SurveyedWrite
from backfill.runtime.queries.run_state import ProgramRun
from backfill.runtime.surveying.mentioned_clients import UNSEEN, clients
from backfill.runtime.switching.batch_function import (
    BatchInProgress,
    WriteTarget,
    not_the_function,
    replaces_each_batch,
    running,
)
from backfill.runtime.switching.side_effects import install_effects

_LIMIT_SECONDS = 60.0
"""How long a call may take."""
_PATIENCE_SECONDS = 10.0
"""How long threads of the function may write nothing."""


def with_calls(
    query: SurveyedQuery,
    function: Callable[[DataFrame, int], None],
    frame: DataFrame,
    run: ProgramRun,
) -> SurveyedQuery:
    """The query with what its function does. ``frame`` has the columns of its batches."""
    found = clients(function)
    if unseen := sorted(set(found).intersection(UNSEEN)):
        what = " and ".join(unseen)
        error = f"was not called, since what {what} does cannot be seen"
        return query.model_copy(update={"clients": found, "error": error})
    install_effects()
    nullable = StructType([StructField(each.name, each.dataType) for each in frame.schema])
    nulls = (None,) * len(nullable)
    writes, problems, error = list[SurveyedWrite](), list[Problem](), ""
    for rows, words in (([], "an empty batch"), ([nulls], "a row of nulls")):
        given = frame.sparkSession.createDataFrame(rows, nullable)
        batch = _NotedBatch(given, str(query.name), complete=query.output_mode == "complete")
        failure = _failure(function, batch, given, run)
        problems += batch.problems
        if failure and not problems and not writes:  # else nulls may be all that it fails for
            error = f"{failure[0]} for {words}{failure[1]}"
        writes += batch.writes
        found = clients(function)  # it may have imported some
        if problems or failure or found:
            break
    return query.model_copy(
        update={
            "writes": tuple(dict.fromkeys(writes)),
            "problems": tuple(map(SurveyedProblem.of, dict.fromkeys(problems))),
            "clients": found,
            "error": error,
        }
    )


def _failure(
    function: Callable[[DataFrame, int], None],
    batch: "_NotedBatch",
    frame: DataFrame,
    run: ProgramRun,
) -> tuple[str, str] | None:
    """How and why a call failed; None if it did not, or was refused."""
    raised: list[BaseException] = []

    def act() -> None:
        try:
            with running(batch):
                function(frame, 0)
                with not_the_function():
                    batch.parts.close(_PATIENCE_SECONDS, run.over)
        except BaseException as error:  # also an exit
            raised.append(error)

    thread = threading.Thread(target=act, name="backfill-check", daemon=True)
    thread.start()
    thread.join(_LIMIT_SECONDS)
    if thread.is_alive():
        return "did not return", f" within {_LIMIT_SECONDS:.0f} s"
    if not raised or batch.problems:
        return None
    kind = type(raised[0]).__name__
    try:
        said = str(raised[0]).strip().splitlines()
    except Exception:  # of the program's own kinds of errors
        said = []
    return "failed", f": {kind}" + (f": {said[0]}" if said else "")


class _Refused(BaseException):
    """Ends a function in spite of what it catches, as the end of the run does in a backfill: one
    that tries again would not return.
    """


class _NotedBatch(BatchInProgress):
    """A batch whose writes are noted. No Backfill is known: any place may be an output, and nothing
    is allowed to happen for real.
    """

    def __init__(self, frame: DataFrame, query: str, *, complete: bool):
        super().__init__(frame, query, query)
        self._complete = complete
        self.writes: list[SurveyedWrite] = []
        self.problems: list[Problem] = []

    def write(self, frame: DataFrame, destination: WriteTarget) -> None:
        if destination.problem is not None:
            raise self.refuse(UnsupportedProgram(destination.problem))
        if destination.replaces and not self._complete:
            raise self.refuse(replaces_each_batch(destination))
        self.writes.append(
            SurveyedWrite(place=destination.place, how=destination.how, keys=destination.keys)
        )

    def takes(self, place: str) -> bool:
        return True

    def allows(self, effect: Effect) -> bool:
        return False

    def part(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _end(self, error: BadInput) -> NoReturn:
        self.problems += error.problems
        raise _Refused
