"""Whole runs with the operator's process: from ``kubectl apply`` to the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from operators import OperatorProcess, running, wait_until_ready
from played import PlayedRun
from rest import Rest, eventually

from table_jobs import HOURS


@pytest.fixture
def operator(crds: None, cluster_admin: Path, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    operator = OperatorProcess(cluster_admin, namespace, tmp_path)
    with running(operator):
        wait_until_ready(operator)
        yield operator


def test_a_backfill_is_planned_run_and_finished(admin: Rest, namespace: str, operator: OperatorProcess, tmp_path: Path) -> None:
    run = PlayedRun(admin, namespace, tmp_path)
    run.create()
    assert run.wait_for("Planned", "True") == "PlanReady"
    run.submit()
    run.replay()
    assert run.wait_for("Succeeded", "True") == "Finished"
    status = run.status
    assert status["progress"]["committed"] == status["progress"]["steps"]
    assert status["progress"]["rowsRead"] == 60 * HOURS
    assert [attempt["outcome"] for attempt in status["attempts"]] == ["Succeeded"]
    assert run.children() == ["january-a1"]
    assert operator.measured('backfill_attempts_total{outcome="Succeeded"}') == 1
    eventually(lambda: operator.measured('backfill_backfills{state="Succeeded"}') == 1, "it is counted as succeeded")
    assert 'name="january"' not in operator.get("/metrics")
