"""Whatever the models can say in a status is stored as it was said."""

from typing import Any

import yaml
from resources import OWN
from rest import BACKFILLS, SPLIT_ASSIGNMENTS, Manifest, Rest
from samples import ASSIGNMENT, BACKFILL

from backfill.api.base import Model
from backfill.api.conditions import ConditionType, Reason
from backfill.api.manifests.problems import read_json
from backfill.api.output import Output
from backfill.api.resolved import Resolved
from backfill.api.source import Source
from backfill.api.static_table import StaticTable
from backfill.api.status import BackfillStatus
from backfill.protocol.split_assignment import SplitAssignmentStatus

WORDS = {
    "table": "lake.ops.summary",
    "reference": "lake.audit.summary",
    "taggedTables": "lake.raw.events",
    "match": "99.9",
    "result": "0123456789abcdef",
    "type": str(ConditionType.SUCCEEDED),
    "reason": str(Reason.FINISHED),
    **dict.fromkeys(("warmUp", "drain", "allowedLateness"), "1h"),
}

AS_IN_THE_SPEC: Manifest = BackfillStatus(
    resolved=Resolved(
        found_for="word",
        sources=(Source(name="clicks", table="lake.raw.clicks", timestamp_column="ingested"),),
        static_tables=(StaticTable(table="lake.raw.airports"),),
        outputs=(Output(name="counts", table="lake.ops.counts"),),
    )
).to_manifest()["resolved"]
"""What a definition describes only once."""


def filled(schema: Manifest, name: str = "") -> Any:
    """A value for every field of a schema."""
    if "enum" in schema:
        return schema["enum"][0]
    if "additionalProperties" in schema:
        return {"0": filled(schema["additionalProperties"])}
    if schema.get("properties") == {}:
        return AS_IN_THE_SPEC[name][0]
    if schema["type"] == "object":
        return {name: filled(field, name) for name, field in schema["properties"].items()}
    if schema["type"] == "array":
        return [filled(schema["items"], name)]
    if schema.get("format") == "date-time":
        return "2021-07-11T00:00:00.000001Z"
    return {"string": WORDS.get(name, "word"), "integer": 7, "number": 0.5, "boolean": True}[
        schema["type"]
    ]


def stored_as_said(admin: Rest, path: str, model: type[Model], schema: Manifest) -> None:
    status = filled(schema)
    assert read_json(model, status).to_manifest() == status
    admin.patch(f"{path}/status", {"status": status}).expect()
    assert admin.get(path).expect()["status"] == status


def schemas() -> dict[str, Manifest]:
    found = {path.stem: yaml.safe_load(path.read_text())["spec"]["versions"][0] for path in OWN}
    fields = {name: each["schema"]["openAPIV3Schema"]["properties"] for name, each in found.items()}
    return {name: each["status"] for name, each in fields.items() if "status" in each}


def test_a_backfills_whole_status(admin: Rest, crds: None, namespace: str) -> None:
    admin.create(BACKFILLS.format(namespace), BACKFILL).expect()
    stored_as_said(
        admin, f"{BACKFILLS.format(namespace)}/july", BackfillStatus, schemas()["backfills"]
    )


def test_a_drivers_whole_report(admin: Rest, crds: None, namespace: str) -> None:
    admin.create(SPLIT_ASSIGNMENTS.format(namespace), ASSIGNMENT).expect()
    path = f"{SPLIT_ASSIGNMENTS.format(namespace)}/july"
    stored_as_said(admin, path, SplitAssignmentStatus, schemas()["splitassignments"])


def test_a_message_too_long_to_be_stored_is_cut_by_the_models(
    admin: Rest, crds: None, namespace: str
) -> None:
    report = {"attempt": 1, "heartbeat": "2021-08-01T00:00:00Z", "message": "x" * 1_000_000}
    admin.create(SPLIT_ASSIGNMENTS.format(namespace), ASSIGNMENT).expect()
    path = f"{SPLIT_ASSIGNMENTS.format(namespace)}/july/status"
    assert admin.patch(path, {"status": report}).status == 422
    admin.patch(path, {"status": read_json(SplitAssignmentStatus, report).to_manifest()}).expect()
