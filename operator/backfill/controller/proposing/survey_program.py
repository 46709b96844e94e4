"""Runs an application's program on this machine until its queries start, and gives what it reads
and writes.
"""

import tempfile
from datetime import UTC, datetime, timedelta

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput, Problem
from backfill.api.spark_application import Application
from backfill.api.spec import Window
from backfill.controller.driver import Launch
from backfill.controller.proposing.ask_driver import ask, check_answered
from backfill.planning.workspace import Workspace
from backfill.protocol.survey_result import SURVEY_FILE, Survey

_MODULE = "backfill.runtime.survey"
_A_DAY = datetime(2024, 1, 1, tzinfo=UTC)
_ANY = Window(start=_A_DAY, end=_A_DAY + timedelta(days=1))


def survey_of(application: Application, *, window: Window = _ANY) -> Survey:
    """What the program of an application reads and writes. Programs see the window.

    Raises:
        BadInput: the program does what a backfill cannot redirect, or has no stream or no query.
        BackfillError: the program failed.
    """
    nothing_known = Backfill.model_validate(
        {
            "metadata": {"name": "survey"},
            "spec": {
                "applicationRef": {"name": application.name},
                "window": window,
                # required, and not looked at
                "sources": [{"name": "any", "table": "any.any.any", "timestampColumn": "any"}],
            },
        }
    )
    with tempfile.TemporaryDirectory(prefix="backfill-survey-") as directory:
        nowhere = Workspace(directory)
        launch = Launch(1, nothing_known, "none", nowhere, nowhere)
        found = ask(_MODULE, SURVEY_FILE, application, launch)
    survey = Survey.model_validate_json(found)
    check_answered(survey.reason, survey.message)
    if not survey.queries or not survey.inputs:
        missing = "reads no Kafka topic and no table as a stream"
        if survey.inputs:
            missing = "starts no query that writes a result"
        raise BadInput(
            Problem("", f"the main program of {application.name} {missing}", "check its arguments")
        )
    return survey
