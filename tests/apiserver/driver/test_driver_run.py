"""A driver's agent on a real API server: how it begins in a pod, and how it ends. Its queries are
played by the test.
"""

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from driver_ends import QUICK, Connection, PlayedController, driver_channel, driver_settings
from pyiceberg.utils.config import Config
from rest import Rest

from backfill.api.errors import BackfillError
from backfill.kube import service_account
from backfill.planning.plan import PlanHeader, plan_directory
from backfill.planning.workspace import Workspace
from backfill.runtime.agent.agent import Agent
from backfill.runtime.agent.kubernetes_channel import KubernetesChannel
from backfill.runtime.launch import prepare
from backfill.runtime.queries.run_state import FINISHED, Run
from backfill.runtime.queries.tracker import Tracker
from backfill.runtime.settings import RuntimeSettings
from table_jobs import Clicks
from waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
def header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlanHeader:
    """A real plan, made in ``tmp_path / "lake" / "here"``."""
    clicks = Clicks(tmp_path / "lake")
    for name, value in clicks.variables.items():
        monkeypatch.setenv(name, value)
    # read once, when PyIceberg was imported
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return clicks.plan_here()


@pytest.fixture
def settings(controller: PlayedController, header: PlanHeader, tmp_path: Path) -> RuntimeSettings:
    plan = plan_directory(Workspace(str(tmp_path / "lake" / "here")), header.plan_id).uri
    sources = [{"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "at"}]
    more = {"plan": plan, "sources": sources}
    return driver_settings(controller, planId=header.plan_id, **more)


@pytest.fixture
def in_a_pod(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_account, "ACCOUNT", connection.directory)
    address = urlsplit(connection.url)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(address.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))


def test_a_driver_in_a_pod_talks_through_the_assignment_that_its_settings_name(
    controller: PlayedController, settings: RuntimeSettings, in_a_pod: None
) -> None:
    controller.create()
    controller.write(planId=settings.plan_id)
    run, agent = prepare(settings)
    agent.start()
    eventually(lambda: controller.status.get("phase") == "Starting", "it says that it starts")
    controller.write(released=2)
    assert run.wait_for_step(1, PATIENCE_SECONDS), "its streams may read"
    run.end(FINISHED)
    assert agent.reported.wait(PATIENCE_SECONDS)
    assert controller.status["phase"] == "Finished"


@pytest.mark.parametrize(
    ("made_again", "message"),
    [
        (True, "the SplitAssignment b belongs to another Backfill with this name"),
        (False, "there is no SplitAssignment .*/b"),
    ],
)
def test_a_driver_that_starts_after_its_backfill_was_deleted_says_so_and_writes_nothing(
    admin: Rest,
    controller: PlayedController,
    settings: RuntimeSettings,
    in_a_pod: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made_again: bool,
    message: str,
) -> None:
    """A Spark operator that lags submits a child that was deleted together with its Backfill."""
    monkeypatch.setattr(KubernetesChannel.__init__, "__defaults__", (QUICK,))
    late = settings.model_copy(update={"checkpoints": str(tmp_path / "checkpoints")})
    if made_again:
        PlayedController(admin, controller.namespace).create()
    shutil.rmtree(late.plan)  # the cleanup has removed it
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BackfillError, match=message):
        prepare(late)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_whose_assignment_is_deleted_stops_by_itself(
    controller: PlayedController,
    settings: RuntimeSettings,
    header: PlanHeader,
    connection: Connection,
) -> None:
    controller.create()
    channel = driver_channel(connection, controller)
    channel.open()
    run = Run(settings, Tracker(header, ["clicks"], lambda source, step: 0, lambda: 0))
    agent = Agent(run, channel, lambda query: None, lambda: True, controller_grace_seconds=0.2)
    agent.start()
    eventually(lambda: controller.status.get("phase") == "Starting", "it says that it starts")
    assert not run.stopping.is_set()
    controller.delete()
    assert agent.reported.wait(PATIENCE_SECONDS)
    assert run.outcome is not None
    assert run.outcome.phase == "Stopped"
