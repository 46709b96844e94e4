"""A Backfill of the same namespace and name in another cluster keeps its plan and checkpoints."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.utils.config import Config

from backfill.api.errors import BadInput
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.controller.jobs.kinds.make_plan import PlanJob
from backfill.planning.workspace import Workspace, checkpoints
from table_jobs import Clicks

HERE, THERE = (f"the cluster with certificate authority {each}" for each in ("1f", "2e"))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlanJob:
    clicks = Clicks(tmp_path / "lake")
    for name, value in clicks.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    place = Workspace.below(str(tmp_path / "work"), "", "default", "january")
    return replace(clicks.plan_job(), workspace=place, kept_in=HERE)


def discard(job: PlanJob) -> None:
    made = DiscardJob("default", "january", job.spec, (), job.workspace, kept_in=job.kept_in)
    replace(made, uid=job.uid).run(lambda progress: None)


def test_what_is_refused_or_removed_elsewhere_leaves_it_alone(job: PlanJob) -> None:
    plan = job.run(lambda progress: None).header
    checkpoints(job.workspace).write("uid-1/query/metadata", b"")
    kept = sorted(job.workspace.files())
    other = replace(job, kept_in=THERE, uid="uid-2")
    with pytest.raises(
        BadInput, match=f"belongs to a Backfill with the same .* in {HERE}; delete that"
    ):
        other.run(lambda progress: None)
    discard(other)
    assert sorted(job.workspace.files()) == kept
    assert replace(other, dry_run=True).run(lambda progress: None).header == plan

    discard(job)
    assert not Path(job.workspace.uri).exists()
    assert other.run(lambda progress: None).header == plan


def test_an_earlier_one_of_the_same_place_is_gone(job: PlanJob) -> None:
    job.run(lambda progress: None)
    again = replace(job, uid="uid-2")
    again.run(lambda progress: None)
    again.run(lambda progress: None)
    discard(job)
    assert job.workspace.files(), "it is the second one's now"
    discard(again)
    assert job.workspace.files() == []


def test_a_backfill_whose_cluster_is_called_another_name_keeps_its_workspace(job: PlanJob) -> None:
    plan = job.run(lambda progress: None).header
    assert replace(job, kept_in=THERE).run(lambda progress: None).header == plan
    with pytest.raises(
        BadInput, match=f"belongs to a Backfill with the same .* in {THERE}; delete that"
    ):
        replace(job, uid="uid-2").run(lambda progress: None)
