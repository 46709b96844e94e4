"""The operator is killed at every write on the way from the end of history to live traffic: the live
application is created once, and the status ends the same.

The writes before are cut in ``test_operator_chaos``. The Spark operator, history's driver and the
live application's are played.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from mortal_run import MortalRun, MortalRuns, essence
from rest import SPARK_APPLICATIONS, SPLIT_ASSIGNMENTS, Manifest

from backfill.kube.object_names import child_name

_LEAST_WRITES = {"Deploy": 11, "Prepare": 6}
_QUERY_ID = "6f9c2a4e-0b55-4c5d-9d0e-8a2f6f1d7c11"
_RUNNING = {"applicationState": {"state": "RUNNING"}, "driverInfo": {}}
_OF_EACH_RUN = {"application", "createdAt"}
"""Fields of ``status.handOff``: a name, and a time."""


def hand_over(mortal: MortalRun, start: str) -> Manifest:
    """From the end of history until it succeeds. The status before the deletion."""
    run = mortal.run
    (source,) = run.clicks.spec.to_manifest()["sources"]  # type: ignore[misc]
    positions = {"partitionColumn": "id", "offsetColumn": "id"}
    named = {"name": live_name(mortal)} if start == "Deploy" else {}
    with mortal.spared():
        run.create(
            window={"start": "2024-01-01T00:00:00Z", "end": "Live"},
            sources=[source | {"kafka": positions, "live": {"kafka": {"topic": "clicks"}}}],
            handOff={"to": "Live", "start": start, **named},
        )
        mortal.start(1)
        for step in range(1, run.assignment()["steps"] + 1):
            mortal.commit(1, step)
    mortal.finish(1, handOff=handed_over())
    if start == "Deploy":
        go_live(mortal)
    return mortal.succeed()


def go_live(mortal: MortalRun) -> None:
    """The live application is created, gets a driver, and catches up."""
    run = mortal.run
    mortal.work_until(lambda: mortal.admin.get(live_path(mortal)).ok, "the live one is created")
    starting = ("Unknown", "Starting")
    mortal.work_until(lambda: run.condition("HandedOver") == starting, "it is seen")
    mortal.admin.patch(f"{live_path(mortal)}/status", {"status": _RUNNING}).expect()
    catching_up = ("Unknown", "CatchingUp")
    mortal.work_until(lambda: run.condition("HandedOver") == catching_up, "its driver is seen")
    mortal.work_until(lambda: "createdAt" in run.status["handOff"], "when it was seen is recorded")
    for lag_seconds in (3_600, 12):
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        query = {"query": "counts", "queryId": _QUERY_ID, "batch": 4, "recordsBehind": 2}
        live = {"queries": [query | {"lagSeconds": lag_seconds, "at": now}], "heartbeat": now}
        path = f"{SPLIT_ASSIGNMENTS.format(run.namespace)}/{run.name}/status"
        mortal.admin.patch(path, {"status": {"live": live}}, fieldManager="backfill-driver")
        mortal.work_until(
            lambda lag=lag_seconds: run.status["handOff"].get("lagSeconds") == lag,
            "how far it is behind is recorded",
        )


def handed_over() -> Manifest:
    """What history's driver reports of its checkpoints."""
    query = {
        "query": "counts",
        "queryId": _QUERY_ID,
        "checkpointLocation": "s3://live/counts",
        "batch": 3,
        "sources": ["clicks"],
    }
    source = {"source": "clicks", "topic": "clicks", "partitions": 1, "offsets": {"0": 180}}
    return {"sources": [source], "queries": [query], "written": True, "seconds": 1}


def live_name(mortal: MortalRun) -> str:
    """Not one that begins as those of the Backfill's own objects."""
    return f"live-of-{mortal.run.name}"


def live_path(mortal: MortalRun) -> str:
    return f"{SPARK_APPLICATIONS.format(mortal.run.namespace)}/{live_name(mortal)}"


def outcome(status: Manifest) -> dict[str, Any]:
    """What is the same in every run."""
    handed = {key: value for key, value in status["handOff"].items() if key not in _OF_EACH_RUN}
    return essence(status) | {"handOff": handed}


@pytest.mark.parametrize(
    ("start", "moment"),
    [
        ("Deploy", "before"),
        ("Deploy", "after"),
        ("Deploy", "late"),
        ("Prepare", "before"),
        ("Prepare", "after"),
    ],
)
def test_an_operator_killed_at_any_write_after_history_goes_live_once(
    start: str, moment: str, mortal_runs: MortalRuns
) -> None:
    known = mortal_runs.life(start)
    for cut, mortal in mortal_runs.each_cut(known, moment, _LEAST_WRITES[start]):
        known.assert_ends(outcome(hand_over(mortal, start)), cut)
        live = mortal.admin.get(live_path(mortal))
        mortal.delete()
        run = mortal.run
        assert mortal.written.children(run.name) == [child_name(run.name, 1)]
        made = mortal.written.made["sparkapplications", live_name(mortal)]
        assert made == (1 if start == "Deploy" else 0), cut
        if start == "Deploy":
            left = mortal.admin.get(live_path(mortal)).expect()
            assert left["metadata"]["uid"] == live.expect()["metadata"]["uid"]
            mortal.admin.delete(live_path(mortal))
