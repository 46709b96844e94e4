"""Whole runs with the operator's process: from ``kubectl apply`` to the end."""

import json
from datetime import UTC, datetime
from pathlib import Path

from operators import OperatorProcess, running, wait_until_ready
from played import PlayedRun
from rest import BACKFILLS, SPARK_APPLICATIONS, SPLIT_ASSIGNMENTS, Rest
from samples import BACKFILL, CONDITION, STATUS

from backfill.kube.object_names import FINALIZER
from manifests import changed
from table_jobs import HOURS, Clicks
from waiting import eventually

RUNNING = {"applicationState": {"state": "RUNNING"}, "driverInfo": {}}


def test_a_backfill_is_planned_run_and_finished(
    admin: Rest, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    run = PlayedRun(admin, namespace, tmp_path)
    uid = run.create()["metadata"]["uid"]
    assert run.wait_for("Planned", "True") == "PlanReady"
    run.submit()
    run.replay()
    assert run.wait_for("Succeeded", "True") == "Finished"
    status = run.status
    assert status["progress"]["committed"] == status["progress"]["steps"]
    assert status["progress"]["rowsRead"] == 60 * HOURS
    assert [attempt["outcome"] for attempt in status["attempts"]] == ["Succeeded"]
    assert run.children() == ["january-a1"]
    # Events and metrics follow the status
    events = f"api/v1/namespaces/{namespace}/events"
    rows = f"{60 * HOURS} rows read in {status['progress']['steps']} steps, 0 dropped as late; "
    eventually(
        lambda: [
            event
            for event in admin.get(events).expect()["items"]
            if event["reason"] == "Succeeded" and event["message"].startswith(rows)
        ],
        "the Event",
    )
    eventually(
        lambda: operator.measured('backfill_attempts_total{outcome="Succeeded"}') == 1,
        "its attempt is counted",
    )
    eventually(
        lambda: operator.measured('backfill_backfills{state="Succeeded"}') == 1,
        "it is counted as succeeded",
    )
    assert 'name="january"' not in operator.metrics()
    # every line about a Backfill names it, and none has a secret
    lines = [line for line in operator.lines() if line["logger"].endswith("reconciles")]
    named = {(line["namespace"], line["name"], line["uid"]) for line in lines}
    assert named == {(namespace, "january", uid)}
    assert not any(
        secret in operator.log_file.read_text()
        for secret in run.clicks.properties.values()
        if "sqlite" in secret
    )


def test_a_backfill_that_has_read_nothing_takes_a_manifest_with_the_right_topic(
    admin: Rest, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    run = PlayedRun(admin, namespace, tmp_path)
    (source,) = run.clicks.spec.to_manifest()["sources"]  # type: ignore[misc]

    def sources(topic: str) -> list[object]:
        return [source | {"live": {"kafka": {"topic": topic}}}]

    run.create(sources=sources("clikcs"))
    assert "clikcs" in json.dumps(run.submit())
    corrected = {"spec": {"sources": sources("clicks")}}
    refusal = admin.patch(run.path, corrected)
    assert refusal.status == 422, "the plan may still be read"
    problem = "spec.sources: no source replaces the topic clicks"
    run.report(1, 0, "Failed", queries=[], reason="UnsupportedProgram", message=problem)
    run.end(1, exit_code=2)
    assert run.wait_for("Succeeded", "False") == "UnsupportedProgram"
    eventually(lambda: "planId" not in run.status, "its plan is removed")
    left = (run.workspace / namespace / "january").rglob("*")
    assert not [each for each in left if each.is_file()]
    admin.patch(run.path, corrected).expect()
    assert "clikcs" not in json.dumps(run.submit(2))
    assert run.condition("Succeeded")[0] != "False"
    run.replay(2)
    assert run.wait_for("Succeeded", "True") == "Finished"
    status = run.status
    assert status["progress"]["rowsRead"] == 60 * HOURS
    assert [each["outcome"] for each in status["attempts"]] == ["Failed", "Succeeded"]


def test_state_goes_on_in_a_live_application_that_outlives_its_backfill(
    admin: Rest, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    run = PlayedRun(admin, namespace, tmp_path)
    (source,) = run.clicks.spec.to_manifest()["sources"]  # type: ignore[misc]
    run.create(
        window={"start": "2024-01-01T00:00:00Z", "end": "Live"},
        sources=[
            source
            | {
                "kafka": {"partitionColumn": "id", "offsetColumn": "id"},
                "live": {"kafka": {"topic": "clicks"}},
            }
        ],
        handOff={"to": "Live", "start": "Deploy"},
    )
    run.submit()
    assert run.status["handOff"] == {"historyEnd": "2024-01-01T02:59:00.000001Z"}
    live = f"{SPARK_APPLICATIONS.format(namespace)}/january-live"
    assert not admin.get(live).ok
    query = {"query": "counts", "checkpointLocation": "s3://live/counts", "batch": 3}
    run.replay(handOff={"queries": [query], "written": True, "seconds": 1})
    created = eventually(lambda: (found := admin.get(live)).ok and found.expect(), "the live one")
    assert "ownerReferences" not in created["metadata"]
    admin.patch(f"{live}/status", {"status": RUNNING}).expect()
    assert run.wait_for("HandedOver", "Unknown")
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    behind = {"query": "counts", "batch": 4, "lagSeconds": 12, "recordsBehind": 2, "at": now}
    path = f"{SPLIT_ASSIGNMENTS.format(namespace)}/january/status"
    report = {"live": {"queries": [behind], "heartbeat": now}}
    admin.patch(path, {"status": report}, fieldManager="backfill-driver").expect()
    assert run.wait_for("Succeeded", "True") == "Finished"
    assert run.condition("HandedOver") == ("True", "Live")
    handed = run.status["handOff"]
    assert (handed["application"], handed["lagSeconds"]) == ("january-live", 12)
    admin.delete(run.path).expect()
    eventually(lambda: not admin.get(run.path).ok, "the Backfill is gone")
    assert admin.get(live).expect()["metadata"]["uid"] == created["metadata"]["uid"]


def test_a_deleted_backfill_leaves_no_directory_unless_others_keep_something_there(
    admin: Rest, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    clicks = Clicks(tmp_path / "lake")
    january, february = (
        PlayedRun(admin, namespace, tmp_path, name, clicks) for name in ("january", "february")
    )
    for run in (january, february):
        run.create()
    for run in (january, february):
        run.wait_for("Planned", "True")
    own, shared = (run.workspace / namespace / run.name for run in (january, february))
    assert list(own.iterdir())
    (shared / "note.txt").write_text("mine")
    for run in (january, february):
        admin.delete(run.path).expect()
    eventually(lambda: not admin.get(january.path).ok, "it is gone")
    assert not own.exists()
    eventually(lambda: not admin.get(february.path).ok, "the other one is gone")
    assert [left.name for left in shared.iterdir()] == ["note.txt"]


def test_an_operator_that_is_asked_to_end_leaves_the_driver_alone_and_the_next_one_goes_on(
    admin: Rest, namespace: str, operator: OperatorProcess, cluster_admin: Path, tmp_path: Path
) -> None:
    run = PlayedRun(admin, namespace, tmp_path)
    run.create()
    run.submit()
    run.report(1, committed=1)
    eventually(lambda: run.assignment()["released"] > 1, "the next step is released")
    assert operator.terminate() == 0
    assert run.assignment().get("stop", False) is False
    assert run.children() == ["january-a1"]
    later = OperatorProcess(cluster_admin, namespace, tmp_path, "later")
    with running(later):
        wait_until_ready(later)
        run.replay(committed=1)
        run.wait_for("Succeeded", "True")
        assert [attempt["number"] for attempt in run.status["attempts"]] == [1]


def test_an_operator_that_is_killed_during_the_run_loses_nothing(
    admin: Rest, namespace: str, operator: OperatorProcess, cluster_admin: Path, tmp_path: Path
) -> None:
    """The same identity goes on with the Lease at once, as a container that starts again in its pod
    does.
    """
    run = PlayedRun(admin, namespace, tmp_path)
    run.create()
    run.submit()
    operator.kill()
    run.report(1, committed=1)
    again = OperatorProcess(cluster_admin, namespace, tmp_path, "one")
    with running(again):
        run.replay(committed=1)
        run.wait_for("Succeeded", "True")
        assert run.children() == ["january-a1"]


def test_a_restart_writes_nothing_for_backfills_at_rest(
    admin: Rest, namespace: str, crds: None, cluster_admin: Path, tmp_path: Path
) -> None:
    paths = [_succeeded(admin, namespace, f"done-{number}") for number in range(20)]
    first = OperatorProcess(cluster_admin, namespace, tmp_path, "first")
    with running(first):
        _wait_for_turns(first, len(paths))
        assert first.terminate() == 0
    versions = [_version(admin, path) for path in paths]
    second = OperatorProcess(cluster_admin, namespace, tmp_path, "second")
    with running(second):
        _wait_for_turns(second, len(paths))
        assert set(second.requested()) == {"list"}
        assert [_version(admin, path) for path in paths] == versions


def _succeeded(admin: Rest, namespace: str, name: str) -> str:
    """The path of a Backfill that succeeded long ago."""
    path = f"{BACKFILLS.format(namespace)}/{name}"
    spec = {
        "metadata.name": name,
        "metadata.finalizers": [FINALIZER],
        "spec.workspace": "s3://lake/work",
    }
    admin.create(BACKFILLS.format(namespace), changed(BACKFILL, spec)).expect()
    condition = CONDITION | {"status": "True", "reason": "Finished"}
    status = STATUS | {
        "conditions": [condition],
        "attempts": [{**STATUS["attempts"][0], "outcome": "Succeeded"}],
    }
    admin.patch(f"{path}/status", {"status": status}).expect()
    return path


def _version(admin: Rest, path: str) -> str:
    return str(admin.get(path).expect()["metadata"]["resourceVersion"])


def _wait_for_turns(operator: OperatorProcess, turns: int) -> None:
    """Until so many turns were taken and none is due."""
    wait_until_ready(operator)
    eventually(
        lambda: operator.measured('backfill_reconciles_total{result="done"}') >= turns,
        f"{turns} turns",
    )
    eventually(lambda: operator.measured("backfill_queue_depth") == 0, "nothing is due")
