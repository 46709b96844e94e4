"""The writers of a survey: a query is looked at instead of started, and nothing else is written."""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from backfill.api.errors import Problem
from backfill.api.spec import Effect
from backfill.protocol.driver_settings import SETTINGS_VARIABLE
from backfill.protocol.survey_result import SurveyedProblem, SurveyedQuery
from backfill.runtime.queries.run_state import ProgramRun
from backfill.runtime.surveying.called_functions import with_calls
from backfill.runtime.surveying.plans import Decoded, QueryPlan
from backfill.runtime.switching.main_program_writes import MainProgram
from backfill.runtime.switching.query_handle import LeftOutQuery
from backfill.runtime.switching.stream_matching import row_writer
from backfill.runtime.switching.stream_writer import ReplacedWriter


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
        name = str(target.by_checkpoint or target.query_name)
        groups_by, keys = plan.groups
        query = SurveyedQuery(
            name=target.query_name,
            table=target.table,
            topic=target.topic,
            format=target.format,
            output_mode=target.output_mode.lower(),
            function=None if function is None else self._run.unused_name(name),
            by_row=bool(target.row_writer),
            columns=plan.columns,
            inputs=plan.inputs,
            watermarks=plan.watermarks,
            joins=plan.joins,
            groups_by=groups_by,
            keys=keys,
            sessions=plan.sessions,
            problems=tuple(map(SurveyedProblem.of, row_writer(target))),
        )
        queries = self._surveyed.queries
        if function is None:
            queries.append(query)
        else:
            # the function may end the process
            queries.append(query.model_copy(update={"error": "ended Spark or the program"}))
            queries[-1] = with_calls(query, function, self._df, self._run)
        self._surveyed.decoded |= plan.decoded
        view = LeftOutQuery(target.query_name, self._run, ends=target.ends)
        self._run.left_out(view)
        return view


class SurveyedProgram(MainProgram):
    """A program that writes nothing: in a survey, tables that it reads once have no rows, so what
    it makes of them would be empty.
    """

    def has_table(self, name: str) -> bool:
        """Any is taken to be there, as in production."""
        return True

    def has_namespace(self, name: str) -> bool:
        """Any, too."""
        return True

    def _problem(self, effect: Effect, what: str, place: str | None) -> Problem:
        message = (
            f"the main program {what} at startup, so it cannot be run here: this would happen for"
            " real, and tables that the program reads would be empty"
        )
        fix = (
            f"skip this where the environment variable {SETTINGS_VARIABLE} is set, as in every"
            " backfill, or write the Backfill by hand"
        )
        return Problem("", message, fix)
