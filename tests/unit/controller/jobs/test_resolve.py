"""What a search asks a person, with tables and a program that were made up."""

from datetime import UTC, datetime
from typing import Any

import pytest

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput, Problem
from backfill.api.resolved import Resolved
from backfill.api.spark_application import Application
from backfill.api.spec import Window
from backfill.controller.jobs.kinds.resolve import ResolveJob
from backfill.controller.proposing import find_out
from backfill.controller.proposing.find_out import Findings, propose
from backfill.planning.lateness_sample import ArrivalLags
from backfill.protocol.explanation import ExplainedQuery
from backfill.protocol.survey_result import Survey, SurveyedQuery

SECOND = 1_000_000
HOUR = 3_600 * SECOND
TIMES = {"start": "2024-03-01", "end": "2024-03-02"}
CLICKS = {"id": "long", "at": "timestamptz", "actual_arrival": "timestamptz"}
SURVEY = Survey.model_validate(
    {
        "inputs": [
            {
                "kind": "Topic",
                "name": "clicks",
                "value": "Json",
                "fields": {"id": "long", "at": "timestamp"},
            }
        ],
        "queries": [
            {
                "name": "hourly",
                "table": "lake.ops.hourly",
                "columns": [{"name": "began", "type": "timestamp", "isEventTime": True}],
                "inputs": ["clicks"],
                "watermarks": [
                    {"column": "at", "delaySeconds": 600, "inputs": ["clicks"], "fields": ["at"]}
                ],
            }
        ],
    }
)


class Lake:
    """Two tables that need no catalog."""

    names = ("lake.ops.hourly", "lake.raw.clicks")

    def find(self, written: str) -> str | None:
        return written if written in self.names else None

    def columns(self, name: str) -> dict[str, str]:
        return CLICKS if name == "lake.raw.clicks" else {"began": "timestamptz"}

    def arrival_column(self, _name: str) -> str | None:
        return None


SAVE = {
    "name": "alerts",
    "function": "save",
    "inputs": ["clicks"],
    "writes": [{"place": "archive", "how": "append"}],
}
DELIVERED = {"timestampColumn": "at", "publish": {"mode": "Deliver"}}
SAVING = Survey.model_validate(
    {"inputs": SURVEY.inputs, "queries": [*SURVEY.queries, SurveyedQuery.model_validate(SAVE)]}
)


def searched(
    monkeypatch: pytest.MonkeyPatch,
    late: int = 1,
    unread: tuple[Problem, ...] = (),
    survey: Survey = SURVEY,
    **spec: Any,
) -> Resolved:
    """What is found if 99.9% of the rows arrive within so many microseconds of their event time."""
    day = Window(start=datetime(2024, 3, 1, tzinfo=UTC), end=datetime(2024, 3, 2, tzinfo=UTC))
    lags = {"clicks": ArrivalLags(1_000, 3, 7, 0, 0, 0, late, late)}
    findings = Findings("app", day, propose(survey, Lake()), lags, (), unread)
    query: dict[str, Any] = {"query": "hourly", "output": "hourly", "execution": "Batch"}
    query["reads"] = {}
    query |= {"lookBackSeconds": 0, "lookAheadSeconds": 4_200}
    monkeypatch.setattr(find_out, "find_out", lambda *_: findings)
    monkeypatch.setattr(find_out, "reach", lambda *_: (ExplainedQuery.model_validate(query),))
    short = {"applicationRef": {"name": "app"}, "window": TIMES} | spec
    backfill = Backfill.model_validate({"metadata": {"name": "a"}, "spec": short})
    return ResolveJob.of(backfill, Application(name="app", main_application_file="/app.py")).run(
        lambda _: None
    )


def test_a_time_of_arrival_at_which_production_would_drop_rows_is_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert searched(monkeypatch, late=SECOND).sources[0].timestamp_column == "actual_arrival"
    with pytest.raises(BadInput, match=r"Production drops rows as late.*is the time of arrival"):
        searched(monkeypatch, late=4 * HOUR)
    decided = searched(monkeypatch, late=4 * HOUR, ordering={"allowedLateness": "0s"})
    assert decided.sources[0].timestamp_column == "actual_arrival"


def test_nothing_is_found_while_a_catalog_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Problem("", "catalog other does not list its tables", may_pass=True, unavailable=True)
    with pytest.raises(BadInput, match="catalog other does not list") as refused:
        searched(monkeypatch, unread=(away,))
    assert refused.value.may_pass, "it is tried again"


@pytest.mark.parametrize(
    "decided",
    [
        {"ignoredQueries": ["alerts"]},
        {"ignoredQueries": ["save"]},
        {"outputs": [{"name": "save", "table": "lake.s.rows", **DELIVERED}]},
    ],
)
def test_a_function_that_the_spec_ignores_or_delivers_has_no_other_outputs(
    monkeypatch: pytest.MonkeyPatch, decided: dict[str, Any]
) -> None:
    with pytest.raises(BadInput, match="the foreachBatch function save writes to archive"):
        searched(monkeypatch, survey=SAVING)
    found = searched(monkeypatch, survey=SAVING, **decided)
    assert [each.name for each in found.outputs] == ["hourly"]


def test_a_listed_output_without_a_mode_is_not_delivered_because_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hourly = {"name": "hourly", "table": "lake.ops.hourly", "timestampColumn": "began"}
    with pytest.raises(BadInput, match='"Deliver" does not suit hourly'):
        searched(monkeypatch, publish="Deliver", outputs=[hourly])
    for name in ("hourly", "mine"):  # it is known by its table as well
        appended = {**hourly, "name": name, "publish": {"mode": "Append"}}
        assert searched(monkeypatch, publish="Deliver", outputs=[appended]).sources


def test_a_rule_that_what_was_found_breaks_is_told_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(BadInput, match=r"of hourly, which was found.*list hourly in spec.outputs"):
        searched(monkeypatch, publish="Upsert")
    with pytest.raises(BadInput, match=r"of clicks, which was found.*what backfill init proposes"):
        searched(monkeypatch, ordering={"policy": "Strict"})
