"""What may change once the plan is made, and what not."""

from typing import Any

import pytest
from rest import BACKFILLS, Rest
from samples import STATUS, rich_backfill

from backfill.api.backfill import Backfill
from backfill.api.changes import MUTABLE_FIELDS, spec_difference
from backfill.api.manifests.problems import read_json
from manifests import changed

MUTABLE: dict[str, Any] = {
    "suspend": False,
    "scaling": {"minExecutors": 3, "maxExecutors": 30},
    "overrides": {"sparkConf": {"spark.x": "1"}},
    "failurePolicy": {"maxAttempts": 9},
    "retryNonce": "2",
    "ttlAfterFinished": "1d",
    "outputs.0.publish.approval": "Automatic",
    "outputs.0.publish.incomplete": "Publish",
}
IMMUTABLE: dict[str, Any] = {
    "applicationRef.name": "other",
    "window.end": "2021-07-13T00:00:00Z",
    "window.drain": "31m",
    "sources.0.table": "lake.raw.other",
    "sources.0.filter": None,
    "sources.0.live.kafka.topic": "other",
    "waitForInput": "1h",
    "ordering.policy": "Exact",
    "maxMisalignment": "2h",
    "outputs.0.name": "other",
    "outputs.0.table": "lake.ops.other",
    "outputs.0.timestampColumn": "other",
    "outputs.0.timestampUnit": None,
    "outputs.0.publish.mode": "Append",
    "outputs": None,
    "ignoredQueries": ["alerts"],
    "execution": "Auto",
    "workspace": None,
    "catalogs": None,
    "planning": {"runIn": "Operator"},
}


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
    changes = {**chosen, f"spec.{place}": IMMUTABLE[place]}
    admin.replace(path, changed(admin.get(path).expect(), changes)).expect()


def test_every_field_of_a_specification_is_tried_here() -> None:
    fields = {
        field.alias or name
        for name, field in Backfill.model_fields["spec"].annotation.model_fields.items()
    }
    assert {place.split(".")[0] for place in (*MUTABLE, *IMMUTABLE)} == fields
    assert set(MUTABLE_FIELDS) == {place for place in MUTABLE if "." not in place}


def test_the_status_can_always_be_written(admin: Rest, path: str) -> None:
    plan(admin, path)
    admin.patch(f"{path}/status", {"status": {"planId": None}}).expect()


def test_the_same_moment_written_in_another_zone_is_no_change(admin: Rest, path: str) -> None:
    plan(admin, path)
    admin.patch(path, {"spec": {"window": {"start": "2021-07-11T02:00:00+02:00"}}}).expect()
