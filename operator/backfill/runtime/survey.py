"""Runs the application's main program until it has started its queries, and says what it reads and
writes, for ``python -m backfill.runtime.survey``. No query starts, and no plan is needed. Functions
of ``foreachBatch`` are called with an empty batch, or a row of nulls.
"""

import os
import threading
from pathlib import Path

from backfill.api.errors import BackfillError
from backfill.iceberg.table_listing import KnownTables
from backfill.protocol.atomic_files import replace_file
from backfill.protocol.survey_result import SURVEY_FILE, Survey
from backfill.runtime.launch import log_to_stderr, run_application
from backfill.runtime.queries.run_state import FINISHED, ProgramRun
from backfill.runtime.settings import settings_from_environment
from backfill.runtime.surveying.queries import Surveyed, SurveyedProgram, SurveyingWriter
from backfill.runtime.surveying.streams import FoundInputs, SurveyedTables, SurveyingReader
from backfill.runtime.switching.install import install_with

_LOOK_SECONDS = 0.1
_IDLE_GRACE_SECONDS = 2.0
"""Seconds for which nothing may start: no query brings events for which listeners could start one.
"""
_NEXT_QUERY_SECONDS = 60.0
"""Seconds that the program may take to start its next query: some never wait for their queries, but
look at them again and again.
"""


def main() -> None:
    """Writes the survey into the channel's directory and ends the process, whatever the main
    program still does.
    """
    log_to_stderr()
    settings = settings_from_environment()
    run = ProgramRun(
        settings, idle_grace_seconds=_IDLE_GRACE_SECONDS, next_query_seconds=_NEXT_QUERY_SECONDS
    )
    found, surveyed = FoundInputs(KnownTables()), Surveyed()
    install_with(
        run,
        lambda: None,
        read_stream=lambda spark: SurveyingReader(spark, run, found),
        tables=SurveyedTables(found),
        write_stream=lambda frame: SurveyingWriter(frame, run, surveyed),
        program=SurveyedProgram(run),
    )
    threading.Thread(target=_watch, args=(run,), name="backfill-survey", daemon=True).start()
    threading.Thread(target=_answer, args=(run, found, surveyed), name="backfill-answer").start()
    run_application(run)
    run.application_waits()


def _watch(run: ProgramRun) -> None:
    """Ends the run once the application starts nothing more."""
    while not run.over.wait(_LOOK_SECONDS):
        if run.has_started_all:
            run.end(FINISHED)


def _answer(run: ProgramRun, found: FoundInputs, surveyed: Surveyed) -> None:
    run.over.wait()
    outcome = run.outcome
    if outcome is None:
        raise BackfillError("the run ended without reporting its outcome")
    answer = _survey(found, surveyed)
    if outcome.reason:
        answer = Survey.model_validate({"reason": outcome.reason, "message": outcome.message})
    file = Path(run.settings.channel) / SURVEY_FILE
    replace_file(file, answer.model_dump_json(by_alias=True).encode())
    os._exit(outcome.exit_status)


def _survey(found: FoundInputs, surveyed: Surveyed) -> Survey:
    inputs = [
        read.model_copy(update=surveyed.decoded[name]._asdict())
        if name in surveyed.decoded
        else read
        for name, read in found.inputs.items()
    ]
    return Survey(
        inputs=tuple(inputs),
        static_tables=tuple(found.static_tables),
        queries=tuple(surveyed.queries),
    )


if __name__ == "__main__":
    # threads of functions of the main module would be taken for the application's
    from backfill.runtime.survey import main as named

    named()
