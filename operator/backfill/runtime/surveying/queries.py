"""The writers of a survey: a query is looked at instead of started, and nothing else is written."""

from collections.abc import Callable
from typing import Any, NoReturn

from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.streaming.query import StreamingQuery

from backfill.api.errors import Problem, UnsupportedProgram
from backfill.protocol.driver_settings import SETTINGS_VARIABLE
from backfill.protocol.survey import SurveyedQuery
from backfill.runtime.queries.run import ProgramRun
from backfill.runtime.surveying.mentions import mentioned
from backfill.runtime.surveying.plans import Decoded, QueryPlan
from backfill.runtime.switching.query import LeftOutQuery
from backfill.runtime.switching.writer import ReplacedWriter


class Surveyed:
    """The queries that the program has started so far."""

    def __init__(self) -> None:
        self.queries: list[SurveyedQuery] = []
        self.decoded: dict[str, Decoded] = {}
        """By input, how values of its records are decoded."""


class SurveyingWriter(ReplacedWriter):
    """A stream writer that notes what is written."""

    def __init__(self, frame: DataFrame, run: ProgramRun, surveyed: Surveyed):
        super().__init__(frame, run)
        self._surveyed = surveyed

    def _replacement(self) -> StreamingQuery:
        target, plan, function = self._target, QueryPlan(self._df), self._function
        groups_by, keys = plan.groups
        self._surveyed.queries.append(
            SurveyedQuery(
                name=target.query_name,
                table=target.table,
                topic=target.topic,
                format=target.format,
                output_mode=target.output_mode.lower(),
                function=None if function is None else str(target.query_name),
                mentions=() if function is None else tuple(mentioned(function)),
                by_row=target.row_writer,
                columns=plan.columns,
                inputs=plan.inputs,
                watermarks=plan.watermarks,
                joins=plan.joins,
                groups_by=groups_by,
                keys=keys,
                sessions=plan.sessions,
            )
        )
        self._surveyed.decoded |= plan.decoded
        view = LeftOutQuery(target.query_name, self._run)
        self._run.left_out(view)
        return view


def refuse_writes(run: ProgramRun) -> None:
    """Refuses every write of a DataFrame from now on. In a survey, tables that the program reads
    once have no rows, so what it makes of them would be empty.
    """
    for name, value in {
        "write": property(_refusal(run, "write")),
        "writeTo": _refusal(run, "writeTo"),
        "mergeInto": _refusal(run, "mergeInto"),
    }.items():
        setattr(ClassicDataFrame, name, value)


def _refusal(run: ProgramRun, call: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any) -> NoReturn:
        message = (
            f"the main program calls DataFrame.{call} while it starts, and init cannot run it:"
            " tables that it reads would be empty, and be written for real"
        )
        fix = (
            f"leave the write out where the environment variable {SETTINGS_VARIABLE} is set, as in"
            " every backfill, or write the Backfill by hand"
        )
        raise run.refuse(UnsupportedProgram(Problem("", message, fix)))

    return refuse
