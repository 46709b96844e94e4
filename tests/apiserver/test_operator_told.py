"""What the operator's process tells people when something around a Backfill is wrong, and how it
goes on once that is fixed.
"""

import json
import re
from pathlib import Path

import pytest
from fake_kubelet import FakeKubelet
from operators import OperatorProcess, running, wait_until_ready
from played import PlayedRun
from rest import BACKFILLS, SPARK_APPLICATIONS, Manifest, Rest
from samples import BACKFILL

from iceberg_tables import sqlite_catalog
from manifests import changed
from table_jobs import CLICKS, Clicks
from waiting import eventually

MOST_KILOBYTES = 400 * 1024
"""Of the operator's process, whose limit in the chart is twice as high."""


def message(run: PlayedRun, kind: str) -> str:
    return next(str(each["message"]) for each in run.status["conditions"] if each["type"] == kind)


def conditions_of(admin: Rest, path: str) -> list[Manifest]:
    return list(admin.get(path).body.get("status", {}).get("conditions", []))


def events(admin: Rest, namespace: str, reason: str) -> list[Manifest]:
    items = admin.get(f"api/v1/namespaces/{namespace}/events").expect()["items"]
    return [event for event in items if event["reason"] == reason]


def edit_secret(admin: Rest, namespace: str, **properties: str) -> None:
    admin.patch(
        f"api/v1/namespaces/{namespace}/secrets/january-catalog", {"stringData": properties}
    ).expect()


def test_a_wrong_catalog_property_is_refused_at_once_and_planned_once_it_is_mended(
    admin: Rest, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    run = PlayedRun(admin, namespace, tmp_path)
    edit_secret(admin, namespace, type="sqll")
    run.create(suspend=True)
    assert run.wait_for("Planned", "False") == "InvalidInput"
    assert run.condition("Stalled") == ("True", "InvalidInput")
    (line,) = message(run, "Planned").splitlines()
    assert line.startswith(
        'catalog lake cannot be opened: its property type is "sqll"; did you mean sql?'
    )
    edit_secret(admin, namespace, type="sql")
    admin.patch(run.path, {"spec": {"retryNonce": "fixed"}}).expect()
    assert run.wait_for("Planned", "True") == "PlanReady"


@pytest.mark.hostile
def test_backfills_with_all_that_can_be_stored_are_refused_and_keep_no_other_waiting(
    admin: Rest,
    crds: None,
    cluster_admin: Path,
    namespace: str,
    tmp_path: Path,
    kubelet: FakeKubelet,
) -> None:
    path = BACKFILLS.format(namespace)
    lists = "[" + "[]," * 400_000 + "0]"
    values = [_levels(500), _levels(9_900), *[lists] * 6]
    for number, value in enumerate(values):
        change = {"metadata.name": f"huge-{number}", "spec.overrides": {"driver": {"template": 0}}}
        text = json.dumps(changed(BACKFILL, change)).replace(
            '"template": 0', f'"template": {value}'
        )
        admin.create(path, text).expect()
    operator = OperatorProcess(cluster_admin, namespace, tmp_path)
    with running(operator):
        wait_until_ready(operator)
        run = PlayedRun(admin, namespace, tmp_path)
        run.create(suspend=True)
        assert run.wait_for("Planned", "True") == "PlanReady"
        told = [
            eventually(
                lambda name=f"huge-{number}": conditions_of(admin, f"{path}/{name}"),
                f"huge-{number} has conditions",
            )
            for number in range(len(values))
        ]
        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{operator.pid}/status").read_text())
    for conditions in told:
        assert "template is nested more than 100 levels deep or has more than 5,000" in str(
            conditions
        )
    assert peak is not None
    assert int(peak[1]) < MOST_KILOBYTES


def _levels(count: int) -> str:
    return '{"a":' * count + "1" + "}" * count


def test_a_production_application_that_is_gone_costs_no_attempt_and_the_next_one_follows_when_it_is_back(
    admin: Rest, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    run = PlayedRun(admin, namespace, tmp_path)
    run.create(failurePolicy={"maxAttempts": 1, "backoff": "1s"})
    run.submit()
    run.report(1, committed=1)
    eventually(lambda: run.status["progress"]["committed"] == 1, "the step is recorded")
    path = f"{SPARK_APPLICATIONS.format(namespace)}/app"
    production = admin.get(path).expect()
    admin.delete(path).expect()
    admin.patch(run.path, {"spec": {"overrides": {"driver": {"memory": "2g"}}}}).expect()
    run.end(1, exit_code=1)
    eventually(
        lambda: run.condition("Running") == ("False", "InvalidInput"),
        "it waits for the application",
    )
    assert f'there is no SparkApplication "app" in namespace {namespace}' in message(run, "Running")
    assert run.condition("Succeeded")[0] == "Unknown"
    assert run.condition("Stalled")[0] == "True"
    eventually(lambda: events(admin, namespace, "InvalidInput"), "the Event")
    assert run.children() == ["january-a1"]
    assert [attempt["number"] for attempt in run.status["attempts"]] == [1]
    admin.apply(
        path,
        {key: production[key] for key in ("apiVersion", "kind", "spec")}
        | {"metadata": {"name": "app"}},
    ).expect()
    # else it is looked at every 30 s
    admin.patch(run.path, {"metadata": {"annotations": {"looked": "again"}}}).expect()
    child = run.submit(2)
    assert child["spec"]["driver"]["memory"] == "2g"


@pytest.fixture
def planned(admin: Rest, namespace: str, operator: OperatorProcess, tmp_path: Path) -> PlayedRun:
    """A Backfill that has a plan and has not begun."""
    run = PlayedRun(admin, namespace, tmp_path)
    run.create(suspend=True)
    assert run.wait_for("Planned", "True") == "PlanReady"
    return run


def test_a_namespace_that_is_deleted_does_not_wait_for_its_backfills(
    admin: Rest, namespace: str, operator: OperatorProcess, planned: PlayedRun
) -> None:
    admin.delete(f"api/v1/namespaces/{namespace}").expect()
    # as its deletion goes on, in any order
    admin.delete(f"api/v1/namespaces/{namespace}/configmaps/january-plan").expect()
    admin.delete(f"{SPARK_APPLICATIONS.format(namespace)}/app").expect()
    admin.delete(planned.path).expect()
    eventually(lambda: admin.get(planned.path).status == 404, "it is gone", 60.0)
    eventually(
        lambda: "Possibly left behind: " in operator.log_file.read_text(), "it says what is left"
    )


def test_a_backfill_that_is_deleted_after_its_application_is_cleaned_up(
    admin: Rest, namespace: str, planned: PlayedRun
) -> None:
    assert [path for path in planned.workspace.rglob("*") if path.is_file()]
    admin.delete(f"{SPARK_APPLICATIONS.format(namespace)}/app").expect()
    admin.delete(planned.path).expect()
    eventually(lambda: admin.get(planned.path).status == 404, "it is gone", 60.0)
    assert [path for path in planned.workspace.rglob("*") if path.is_file()] == []


def test_the_second_backfill_of_the_same_rows_is_told_of_the_first(
    admin: Rest, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    clicks = Clicks(tmp_path / "lake")
    sqlite_catalog(tmp_path / "lake").create_table("raw.counts", schema=CLICKS)
    output = {
        "name": "counts",
        "table": "lake.raw.counts",
        "timestampColumn": "at",
        "publish": {"mode": "Append"},
    }
    first, second = (
        PlayedRun(admin, namespace, tmp_path, name, clicks) for name in ("first", "second")
    )
    first.create(suspend=True, outputs=[output])
    first.wait_for("Planned", "True")
    assert events(admin, namespace, "PlanWarning") == []
    second.create(suspend=True, outputs=[output])
    second.wait_for("Planned", "True")
    warning = (
        f"Backfill {namespace}/first, which is in progress, also writes lake.raw.counts, from"
        " 2024-01-01T00:00:00Z"
    )
    assert warning in message(second, "Planned")
    (event,) = eventually(lambda: events(admin, namespace, "PlanWarning"), "the Event")
    assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "second")
    assert event["message"].startswith(warning)
