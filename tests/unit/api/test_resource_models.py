"""The resources as a whole: documented, written as they are read, and quiet."""

import pickle
import warnings
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition, set_condition
from backfill.api.errors import InvalidManifest, InvalidPlanInput, Problem
from backfill.api.manifests.problems import read_json
from backfill.api.quantities import parse_time
from backfill.api.spark_application import Application
from backfill.api.status import Attempt, BackfillStatus
from backfill.crd.schema import described
from backfill.protocol.split_assignment import SplitAssignment
from manifests import BACKFILL, changed

VALUE = {"format": "avro", "schema": "{}", "framing": "Confluent", "schemaId": 7}
SHAPED = {
    "fields": {"userId": "uid", "payload.after.city": "town"},
    "absent": ["payload.before"],
    "envelope": "payload.after",
    "timestampFormat": "yyyy-MM-dd HH:mm:ss",
    "timestampUnit": "ms",
    "timeZone": "Europe/Berlin",
}
EVERYTHING = {
    "spec.window": {
        "start": "2021-07-11T00:00:00Z",
        "end": "2021-07-12T00:00:00Z",
        "warmUp": "2h",
        "drain": "30m",
    },
    "spec.sources.0.regions": {"column": "region", "in": ["us-east-1"]},
    "spec.sources.0.snapshot": {"asOf": "2021-07-13T00:00:00Z", "protect": True},
    "spec.sources.0.live": {"kafka": {"topic": "i", "value": VALUE}},
    "spec.sources.1.live": {"kafka": {"topic": "p", "value": SHAPED}},
    "spec.sources.0.kafka": {
        "partitionColumn": "p",
        "offsetColumn": "o",
        "dropDuplicates": True,
    },
    "spec.outputs.0.validate": {
        "against": "Reference",
        "reference": {"table": "lake.a.b", "timestampColumn": "t", "timestampUnit": "ms"},
        "keys": ["show"],
        "minMatch": "99.9",
    },
    "spec.outputs.0.publish": {"mode": "None", "approval": "Manual"},
    "spec.scaling": {"minExecutors": 2, "maxExecutors": 40, "completeWithin": "5h"},
    "spec.overrides": {
        "driver": {"memory": "4g", "labels": {"team": "a"}},
        "sparkConf": {"spark.x": "1"},
    },
    "spec.planning": {"targetStepBytes": "64Mi"},
    "spec.ttlAfterFinished": "7d",
    "metadata.labels": {"team": "a"},
}


def models(*roots: type[BaseModel]) -> Iterator[tuple[str, str | None, str]]:
    """Every field of the models and of those within them: owner, description, name."""
    for root in roots:
        schema = described(root)
        for name, definition in ({root.__name__: schema} | schema.get("$defs", {})).items():
            for field, part in definition.get("properties", {}).items():
                target = schema.get("$defs", {}).get(part.get("$ref", "").rsplit("/", 1)[-1], {})
                yield name, part.get("description") or target.get("description"), field


def test_every_field_says_what_it_means() -> None:
    fields = list(models(Backfill, SplitAssignment, Application))
    assert len(fields) > 100
    assert [
        f"{owner}.{field}"
        for owner, description, field in fields
        if not (description or "").endswith((".", ")"))
    ] == []


def test_a_resource_is_written_as_it_was_read() -> None:
    document = changed(BACKFILL, EVERYTHING)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backfill = read_json(Backfill, document)
        written = backfill.to_manifest()
        assert read_json(Backfill, written) == backfill  # type: ignore[arg-type]
    spec = written["spec"]
    assert isinstance(spec, dict)
    assert spec["window"] == EVERYTHING["spec.window"]
    assert spec["sources"][0]["regions"] == EVERYTHING["spec.sources.0.regions"]
    assert spec["outputs"][0]["validate"]["minMatch"] == "99.9"
    assert spec["overrides"]["driver"] == {"memory": "4g", "labels": {"team": "a"}}
    assert spec["planning"]["targetStepBytes"] == 64 * 2**20


def test_the_models_are_defined_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in (Backfill, SplitAssignment, Application):
            model.model_rebuild(force=True)
            model.model_json_schema(by_alias=True)


def test_a_status_is_stored_without_what_is_empty() -> None:
    status = BackfillStatus(
        attempts=(Attempt(number=1, started_at=parse_time("2021-07-11T00:00:00Z")),)
    )
    stored = status.to_manifest()
    assert read_json(BackfillStatus, stored) == status  # type: ignore[arg-type]
    assert set(stored) == {"observedGeneration", "progress", "attempts"}
    assert not {"", None}.intersection(stored["progress"].values())  # type: ignore[attr-defined]
    assert stored["progress"]["committed"] == 0, "that nothing is read yet is no empty value"  # type: ignore[index]
    assert "message" not in stored["attempts"][0]  # type: ignore[index]


def test_a_conditions_transition_time_moves_only_with_its_status() -> None:
    first, later = parse_time("2021-07-11T00:00:00Z"), parse_time("2021-07-12T00:00:00Z")
    conditions = set_condition((), ConditionType.PLANNED, "Unknown", Reason.PLANNING, "", first, 1)
    conditions = set_condition(
        conditions, ConditionType.RUNNING, "True", Reason.REPLAYING, "", first, 1
    )
    conditions = set_condition(
        conditions, ConditionType.PLANNED, "True", Reason.PLAN_READY, "", later, 1
    )
    conditions = set_condition(
        conditions, ConditionType.RUNNING, "True", Reason.REPLAYING, "step 2", later, 2
    )
    planned, running = (
        find_condition(conditions, kind) for kind in (ConditionType.PLANNED, ConditionType.RUNNING)
    )
    assert planned is not None
    assert running is not None
    assert [condition.type for condition in conditions] == ["Planned", "Running"]
    assert planned.last_transition_time == later
    assert (running.last_transition_time, running.message, running.observed_generation) == (
        first,
        "step 2",
        2,
    )


@pytest.mark.parametrize("kind", [InvalidManifest, InvalidPlanInput])
def test_problems_come_back_whole_from_another_process(kind: type[InvalidManifest]) -> None:
    error = kind([Problem("spec.a", "is wrong", "fix it"), Problem("", "and so is this")])
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert back.problems == error.problems
    assert str(back) == "spec.a: is wrong; fix it\nand so is this"


def test_what_a_newer_operator_has_recorded_is_ignored() -> None:
    """So that an operator that is rolled back still removes what it finds."""
    at = "2024-01-01T00:00:00Z"
    known = {"type": "Planned", "status": "True", "reason": "PlanReady", "lastTransitionTime": at}
    status = {
        "planId": "3fa2",
        "validation": {"matched": 1},
        "attempts": [{"number": 1, "startedAt": at, "queue": "fast"}],
        "progress": {"steps": 3, "bytesPerSecond": 7},
        "retry": {
            "job": "plan",
            "failures": 1,
            "since": at,
            "nextAt": at,
            "message": "m",
            "more": 1,
        },
        "outputs": [{"name": "o", "table": "lake.ops.o", "samples": []}],
        "conditions": [
            known,
            known | {"type": "Compared"},
            known | {"type": "Running", "reason": "Paused"},
        ],
    }
    read = read_json(BackfillStatus, status)
    assert (read.plan_id, read.attempts[0].number, read.progress.steps) == ("3fa2", 1, 3)
    assert [condition.type for condition in read.conditions] == ["Planned"]
