"""What may change once the plan is made, and what not."""

from typing import Any

import pytest
from rest import BACKFILLS, Rest
from samples import STATUS, rich_backfill

from backfill.api.backfill import Backfill
from backfill.api.forbidden_changes import MUTABLE_FIELDS, spec_difference
from backfill.api.manifests.problems import read_json
from manifests import changed

MUTABLE: dict[str, Any] = {
    "suspend": False,
    "scaling": {"minExecutors": 3, "maxExecutors": 30},
    "overrides": {"sparkConf": {"spark.x": "1"}},
    "failurePolicy": {"maxAttempts": 9},
    "retryNonce": "2",
    "ttlAfterFinished": "1d",
    "outputs.0.publish.incomplete": "Publish",
    "outputs.0.publish.maxLoss": "2.5",
    "outputs.0.publish.allowNull": ["coupon"],
    "outputs.0.publish.allowOverlap": ["morning"],
    "outputs.0.validate": {
        "against": "Reference",
        "reference": {"table": "lake.audit.summary", "timestampColumn": "t", "timestampUnit": "ms"},
    },
}
IMMUTABLE: dict[str, Any] = {
    "applicationRef.name": "other",
    "window.end": "2021-07-13T00:00:00Z",
    "window.drain": "31m",
    "sources.0.table": "lake.raw.other",
    "sources.0.filter": None,
    "sources.0.live.kafka.topic": "other",
    "sources.0.live.kafka.value": {"fields": {"userId": "uid"}, "absent": ["coupon"]},
    "waitForInput": "1h",
    "ordering.policy": "Exact",
    "maxMisalignment": "2h",
    "outputs.0.name": "other",
    "outputs.0.table": "lake.ops.other",
    "outputs.0.timestampColumn": "other",
    "outputs.0.timestampUnit": None,
    "outputs.0.publish.mode": "Append",
    "outputs": None,
    "publish": "Append",
    "ignoredQueries": ["alerts"],
    "allowedEffects": ["Connections"],
    "staticTables": [{"table": "lake.crm.customers"}],
    "execution": "Auto",
    "maxRowsPerSecond": 10,
    "handOff": {"to": "Live"},
    "workspace": None,
    "catalogs": None,
    "planning": {"targetStepBytes": "1Gi"},
}

NEEDED: dict[str, dict[str, Any]] = {
    "publish": {"spec.sources": None},
    "handOff": {
        "spec.window.end": "Live",
        "spec.window.drain": "0s",
        "spec.sources.0.filter": None,
        "spec.sources.0.regions": None,
        "spec.outputs.0.publish.mode": "Append",
    },
}
"""What must change together with a field."""


@pytest.fixture
def path(admin: Rest, crds: None, namespace: str) -> str:
    """A Backfill of which nothing has been planned yet."""
    admin.create(BACKFILLS.format(namespace), rich_backfill()).expect()
    return f"{BACKFILLS.format(namespace)}/july"


def plan(admin: Rest, path: str) -> None:
    admin.patch(f"{path}/status", {"status": STATUS}).expect()


@pytest.mark.parametrize("place", MUTABLE)
def test_what_an_attempt_follows_may_change_at_any_time(admin: Rest, path: str, place: str) -> None:
    plan(admin, path)
    stored = admin.get(path).expect()
    after = changed(stored, {f"spec.{place}": MUTABLE[place]})
    assert admin.replace(path, after).expect()["spec"] != stored["spec"]
    assert spec_difference(read_json(Backfill, stored).spec, read_json(Backfill, after).spec) == []


@pytest.mark.parametrize("place", IMMUTABLE)
def test_what_the_plan_is_made_from_may_not_change_once_it_is_made(
    admin: Rest, path: str, place: str
) -> None:
    plan(admin, path)
    stored = admin.get(path).expect()
    after = changed(stored, {f"spec.{place}": IMMUTABLE[place]})
    answer = admin.replace(path, after)
    assert answer.status == 422
    field = f"spec.{place.split('.', maxsplit=1)[0]}"
    assert (
        f'{field}: Invalid value: "object": cannot change once the plan is made' in answer.message
    )
    assert spec_difference(read_json(Backfill, stored).spec, read_json(Backfill, after).spec) != []


@pytest.mark.parametrize("place", IMMUTABLE)
def test_before_there_is_a_plan_everything_may_change(admin: Rest, path: str, place: str) -> None:
    # waiting goes only without a chosen snapshot
    chosen = dict.fromkeys(("spec.sources.0.snapshot", "spec.sources.1.snapshot"))
    changes = {**chosen, f"spec.{place}": IMMUTABLE[place], **NEEDED.get(place, {})}
    admin.replace(path, changed(admin.get(path).expect(), changes)).expect()


def test_every_field_of_a_specification_is_tried_here() -> None:
    fields = {
        field.alias or name
        for name, field in Backfill.model_fields["spec"].annotation.model_fields.items()
    }
    assert {place.split(".")[0] for place in (*MUTABLE, *IMMUTABLE)} == fields
    assert set(MUTABLE_FIELDS) == {place for place in MUTABLE if "." not in place}


def test_a_limit_of_rows_may_change_but_not_go(admin: Rest, path: str) -> None:
    first = changed(admin.get(path).expect(), {"spec.maxRowsPerSecond": 10})
    admin.replace(path, first).expect()
    plan(admin, path)
    stored = admin.get(path).expect()
    without = admin.replace(path, changed(stored, {"spec.maxRowsPerSecond": None}))
    assert "spec.maxRowsPerSecond: Invalid value" in without.message
    slower = admin.replace(path, changed(stored, {"spec.maxRowsPerSecond": 5})).expect()
    assert slower["spec"]["maxRowsPerSecond"] == 5


def test_files_go_where_they_were_to_go_when_the_plan_was_made(admin: Rest, path: str) -> None:
    places = [{"mode": "Export", "location": f"s3://lake/{place}"} for place in ("out", "other")]
    before, after = ({"spec.outputs.0.publish": place} for place in places)
    stored = admin.replace(path, changed(admin.get(path).expect(), before)).expect()
    plan(admin, path)
    wanted = changed(admin.get(path).expect(), after)
    assert "cannot change once the plan is made" in admin.replace(path, wanted).message
    old, new = (read_json(Backfill, each).spec for each in (stored, wanted))
    (problem,) = spec_difference(old, new)
    assert problem.field == "spec.outputs[0].publish.location"


def test_the_status_can_always_be_written(admin: Rest, path: str) -> None:
    plan(admin, path)
    admin.patch(f"{path}/status", {"status": {"planId": None}}).expect()


def test_the_same_moment_written_in_another_zone_is_no_change(admin: Rest, path: str) -> None:
    plan(admin, path)
    for start in ("2021-07-11T02:00:00+02:00", "2021-07-11"):
        admin.patch(path, {"spec": {"window": {"start": start}}}).expect()


_MANUAL = {"name": "summary", "table": "lake.ops.summary", "timestampColumn": "at"}

_AUDITED = {"validate": {"against": "Reference", "reference": {"table": "lake.audit.summary"}}}


@pytest.mark.parametrize(
    ("before", "after", "waived"),
    [
        ({"approval": "Manual"}, {"approval": "Automatic"}, True),
        ({"approval": "Manual"}, {}, False),
        ({}, {"approval": "Automatic"}, True),
        ({}, {"approval": "Manual"}, False),
        ({}, {"validate": {"keys": ["id"]}}, True),
        ({}, {"validate": {"keys": ["id"]}, "approval": "Manual"}, False),
        ({"validate": {"keys": ["id"]}}, {}, False),
        ({}, _AUDITED, False),
        (_AUDITED, {}, False),
        ({"validate": {"keys": ["id"]}}, _AUDITED, False),
        (_AUDITED, {"validate": {"keys": ["id"]}}, True),
        (_AUDITED, {**_AUDITED, "approval": "Automatic"}, True),
        ({**_AUDITED, "approval": "Automatic"}, {}, False),
        ({"approval": "Automatic"}, {"approval": "Manual"}, False),
    ],
)
def test_an_editor_may_ask_for_approval_and_not_waive_it(
    admin: Rest, path: str, before: dict[str, Any], after: dict[str, Any], waived: bool
) -> None:
    """The default of a Replace that is not compared with production is that it needs approval."""

    def outputs(wanted: dict[str, Any]) -> list[dict[str, Any]]:
        approval = {name: value for name, value in wanted.items() if name == "approval"}
        validate = {name: value for name, value in wanted.items() if name == "validate"}
        return [{**_MANUAL, **validate, "publish": {"mode": "Replace", **approval}}]

    stored = admin.get(path).expect()
    first = admin.replace(path, changed(stored, {"spec.outputs": outputs(before)})).expect()
    plan(admin, path)
    first = admin.get(path).expect()
    wanted = changed(first, {"spec.outputs": outputs(after)})
    answer = admin.replace(path, wanted)
    problems = spec_difference(read_json(Backfill, first).spec, read_json(Backfill, wanted).spec)
    assert bool(problems) is waived
    assert answer.ok is not waived
    if waived:
        assert "which cannot be waived once the plan is made" in answer.message


@pytest.mark.parametrize(
    ("after", "waived"),
    [
        ({"publish": {"approval": "Automatic"}}, True),
        ({"validate": {"keys": ["id"]}}, True),
        ({"publish": {"approval": "Manual"}}, False),
    ],
)
def test_an_editor_may_not_waive_approval_of_what_is_published_like_all_others(
    admin: Rest, path: str, after: dict[str, Any], waived: bool
) -> None:
    short = {"spec.sources": None, "spec.publish": "Replace", "spec.outputs": [_MANUAL]}
    admin.replace(path, changed(admin.get(path).expect(), short)).expect()
    plan(admin, path)
    wanted = changed(admin.get(path).expect(), {"spec.outputs": [{**_MANUAL, **after}]})
    answer = admin.replace(path, wanted)
    assert ("cannot be waived" in answer.message) is waived
