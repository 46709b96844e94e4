"""Calls a function of ``foreachBatch`` with an empty batch, to find out what it does with it, and
with a row of nulls if that is nothing: its writes are noted instead of made, and what a backfill
would refuse is refused here.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from backfill.api.errors import BadInput, Problem, UnsupportedProgram, first_line
from backfill.api.spec import Effect
from backfill.protocol.survey_result import SurveyedProblem, SurveyedWrite
from backfill.runtime.queries.run_state import ProgramRun
from backfill.runtime.surveying.mentioned_clients import UNSEEN, clients
from backfill.runtime.switching.batch_function import (
    BatchInProgress,
    WriteTarget,
    not_the_function,
    replaces_each_batch,
    running,
)
from backfill.runtime.switching.program_lines import program_line
from backfill.runtime.switching.side_effects import install_effects

_PATIENCE_SECONDS = 10.0
"""How long threads of the function may write nothing."""


def call(
    function: Callable[[DataFrame, int], None],
    frame: DataFrame,
    run: ProgramRun,
    query: str,
    *,
    complete: bool,
) -> dict[str, Any]:
    """What the function does, as fields of a
    :class:`~backfill.protocol.survey_result.SurveyedQuery`. ``complete`` is whether each of its
    batches has the whole result.
    """
    if unseen := sorted(set(clients(function)).intersection(UNSEEN)):
        what = " and ".join(unseen)
        error = f"was not called, since what {what} does cannot be seen"
        return {"clients": clients(function), "error": error}
    install_effects()
    nullable = StructType([StructField(each.name, each.dataType) for each in frame.schema])
    nulls = (None,) * len(nullable)
    for rows, words in (([], "an empty batch"), ([nulls], "a row of nulls")):
        with not_the_function():
            given = frame.sparkSession.createDataFrame(rows, nullable)
        batch, error = _NotedBatch(given, query, complete=complete), ""
        try:
            with running(batch):
                function(given, 0)
                with not_the_function():
                    batch.parts.close(_PATIENCE_SECONDS, run.over)
        except Exception as raised:
            error = f"failed for {words}: {type(raised).__name__}: {first_line(raised)}"
        found = clients(function)  # it may have imported some
        if batch.writes or batch.problems or error or found:
            break  # else it may look whether there are rows
    return {
        "writes": tuple(batch.writes),
        "problems": tuple(
            SurveyedProblem(message=each.message, fix=each.fix)
            for each in dict.fromkeys(batch.problems)
        ),
        "clients": found,
        # an error that follows from a refusal is none of the program's own
        "error": "" if batch.problems else error,
    }


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

    def refuse(self, error: BadInput) -> BadInput:
        line = program_line()
        found = [replace(each, message=f"{each.message}{line}") for each in error.problems]
        self.problems += found
        return type(error)(found)
