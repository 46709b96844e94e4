"""Planning under way goes on whatever is edited, unless that makes another plan, or makes it in
another way.
"""

from typing import Any

import pytest

from backfill.controller.decisions.actions import StartJob
from backfill.controller.decisions.decide import decide
from situations import backfill, job_state, observed, plan_job

_SOURCE = {"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "at"}
_OUTPUT = {"name": "counts", "table": "lake.ops.counts", "publish": {"mode": "Append"}}

NO_MATTER: list[dict[str, Any]] = [
    {"suspend": True},
    {"scaling": {"maxExecutors": 40}},
    {"overrides": {"executor": {"cores": 8}, "sparkConf": {"spark.sql.shuffle.partitions": "7"}}},
    {"failurePolicy": {"maxAttempts": 9}},
    {"execution": "Streaming"},
    {"retryNonce": "again"},
    {"ttlAfterFinished": "7d"},
    {"sources": [_SOURCE | {"live": {"kafka": {"topic": "clicks"}}}]},
    {"outputs": [_OUTPUT | {"publish": {"mode": "Append", "approval": "Manual"}}]},
]
MATTERS: list[dict[str, Any]] = [
    {"applicationRef": {"name": "another"}},
    {"window": {"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T11:00:00Z"}},
    {"maxMisalignment": "1h"},
    {"ordering": {"policy": "Exact"}},
    {"sources": [_SOURCE | {"filter": "id > 5"}]},
    {"outputs": [_OUTPUT | {"table": "lake.ops.others"}]},
    {"outputs": [_OUTPUT | {"publish": {"mode": "Replace"}, "timestampColumn": "at"}]},
    {"catalogs": [{"name": "lake", "secretRef": {"name": "lake-catalog"}}]},
    {"planning": {"targetStepBytes": "64Mi"}},
    {"planning": {"resources": {"memory": "3Gi"}}},
]


def name_of(edit: dict[str, Any]) -> str:
    return str(edit).strip("{}").replace("'", "")[:60]


@pytest.mark.parametrize("edit", NO_MATTER, ids=name_of)
def test_an_edit_that_has_nothing_to_do_with_the_plan_does_not_begin_anew(
    edit: dict[str, Any],
) -> None:
    under_way = job_state(plan_job(backfill()), "Running")
    edited = observed(backfill(generation=2, **edit), job=under_way, parallelism=320)
    assert decide(edited).next.actions == ()


@pytest.mark.parametrize("edit", MATTERS, ids=name_of)
def test_an_edit_that_the_plan_depends_on_begins_anew(edit: dict[str, Any]) -> None:
    edited = backfill(generation=2, **edit)
    seen = observed(edited, job=job_state(plan_job(backfill()), "Running"))
    assert decide(seen).next.actions == (StartJob(plan_job(edited)),)


def test_a_plan_that_begins_takes_the_scaling_of_now() -> None:
    (action,) = decide(observed(backfill(), parallelism=320)).next.actions
    assert isinstance(action, StartJob)
    assert getattr(action.job, "parallelism", None) == 320
