"""A tenant who aims a workspace at somebody else's files reaches nothing outside of the Backfill's
own part.
"""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from pyarrow import fs
from pydantic import TypeAdapter, ValidationError

from backfill.api.field_types import DirectoryUri
from backfill.api.status import BackfillStatus
from backfill.api.workspace_locations import is_below
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.planning import workspace as workspace_module
from backfill.planning.workspace import Workspace
from situations import backfill

pytestmark = pytest.mark.hostile

AIMED = [
    "s3://lake/prod/team-b?",
    "s3://lake/prod/team-b?versionId=1",
    "s3://lake/prod/team-b#",
    "s3://lake/prod/team-b%2F",
    "s3://lake/prod/team-a/../team-b",
    "s3://lake/prod/./team-b",
    "s3://lake/prod//team-b",
    "s3://lake/prod/te\nam-b",
    "s3://lake/prod/te\tam-b",
    "s3://lake/prod/team-b\n",
    "s3://lake/prod/team b",
    "s3://lake/prod\\team-b",
    "s3://lake\u2215prod/team-b",
    "s3://lake/prod\uff0fteam-b",
    "s3://lake/prod/team-b\uff1f",
    "s3://lake/prod/team\u2024\u2024/b",
    "s3://lake/prod/team-b\u0000",
    "s3://lake/\u202eteam-b",
    "s3://user:password@lake/prod/team-b",
    "s3://lake@elsewhere/prod",
    "S3://lake/prod",
    "file://host/prod",
    "/mnt/shared/../team-b",
    "../team-b",
]
MEANT = [
    "s3://lake",
    "s3://lake/backfills/",
    "s3a://lake.example.com/a_b/c=d/v1.2",
    "gs://lake/work",
    "gcs://lake/work",
    "abfss://container@account.dfs.core.windows.net/work",
    "hdfs://namenode:8020/user/spark",
    "/mnt/shared/.work",
    "file:///mnt/shared",
    "shared/work",
    "./work",
]


@pytest.mark.parametrize("location", AIMED, ids=ascii)
def test_a_workspace_that_could_mean_another_teams_prefix_is_refused_where_it_is_written_and_where_it_is_opened(
    location: str,
) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(DirectoryUri).validate_python(location)
    place = Workspace.below(location, "lake", "team-a", "july")
    for attempt in (
        place.child("plans").remove,
        lambda: place.read("plan.json"),
        lambda: place.write("plan.json", b""),
    ):
        with pytest.raises(ValueError, match="may mean a different place"):
            attempt()


@pytest.mark.parametrize("location", MEANT)
def test_ordinary_workspaces_are_taken(location: str) -> None:
    assert TypeAdapter(DirectoryUri).validate_python(location) == location


def test_what_is_removed_must_end_as_the_backfills_own_path_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever a library makes of a URI, and whatever somebody wrote into a status."""
    (tmp_path / "lake" / "prod" / "team-b" / "plans").mkdir(parents=True)
    monkeypatch.setattr(
        "backfill.iceberg.object_stores.open_store",
        lambda *_: fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()),
    )
    elsewhere = DiscardJob.of(backfill(BackfillStatus(workspace="s3://lake/prod/team-b"))).workspace
    assert elsewhere is not None
    with pytest.raises(ValueError, match="does not belong to this Backfill"):
        elsewhere.child("plans").remove()
    monkeypatch.setattr(workspace_module, "is_plain", lambda _: True)
    with pytest.raises(ValueError, match="leads to lake/prod/team-b"):
        Workspace.below("s3://lake/prod/team-b?", "lake", "team-a", "july").child("plans").remove()
    assert (tmp_path / "lake" / "prod" / "team-b" / "plans").is_dir()
    own = Workspace.below("s3://lake/prod", "lake", "team-b", "july").child("plans")
    own_directory = tmp_path / "lake" / "prod" / "team-b" / "july" / "plans"
    own_directory.mkdir(parents=True)
    own.remove()
    assert not own_directory.exists()


@pytest.mark.parametrize(
    "linked", ["team-a", "team-a/july", "team-a/july/plans", "team-a/july/plans/1"]
)
def test_a_link_in_a_shared_volume_leads_nowhere(tmp_path: Path, linked: str) -> None:
    shared, theirs = tmp_path / "shared", tmp_path / "team-b"
    for path in ("july/plans/1", "plans/1", "1"):
        (theirs / path).mkdir(parents=True, exist_ok=True)
        (theirs / path / "plan.json").write_bytes(b"theirs")
    (theirs / "plan.json").write_bytes(b"theirs")
    before = sorted(theirs.rglob("*"))
    (shared / linked).parent.mkdir(parents=True)
    (shared / linked).symlink_to(theirs)
    place = Workspace.below(str(shared), "", "team-a", "july")
    plan = place.child("plans", "1")
    refused = "which does not belong to this Backfill"
    with pytest.raises(ValueError, match=refused):
        plan.read("plan.json")
    with pytest.raises(ValueError, match=refused):
        plan.write("plan.json", b"ours")
    with pytest.raises(ValueError, match=refused):
        plan.names("")
    if not linked.endswith("1"):
        with pytest.raises(ValueError, match=refused):
            place.child("plans").remove()
    else:
        place.child("plans").remove()
        assert not os.path.lexists(shared / linked), "the link itself goes with what it is in"
    with suppress(ValueError):
        place.remove_if_empty()
    assert sorted(theirs.rglob("*")) == before
    assert (theirs / "plan.json").read_bytes() == b"theirs"


def test_a_volume_that_is_mounted_through_a_link_works(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "mounted").symlink_to(tmp_path / "disk")
    place = Workspace.below(str(tmp_path / "mounted"), "", "team-a", "july")
    place.child("plans").write("plan.json", b"ours")
    assert place.child("plans").names("") == ["plan.json"]
    place.child("plans").remove()
    place.remove_if_empty()
    assert not (tmp_path / "disk" / "team-a" / "july").exists()


def test_a_link_to_a_directory_that_is_this_backfills_too_works(tmp_path: Path) -> None:
    """As where the files of a team were moved to a larger disk."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "disk" / "team-a").mkdir(parents=True)
    (tmp_path / "shared" / "team-a").symlink_to(tmp_path / "disk" / "team-a")
    plans = Workspace.below(str(tmp_path / "shared"), "", "team-a", "july").child("plans")
    plans.write("1/plan.json", b"ours")
    assert plans.files() == ["1/plan.json"]
    plans.remove()
    assert not (tmp_path / "disk" / "team-a" / "july" / "plans").exists()


def test_a_part_of_a_namespace_is_not_another_one_whose_name_begins_alike() -> None:
    assert is_below("s3a://lake/work/team-a/july", "s3://lake/work/team-a/")
    assert is_below("file:///mnt/work/team-a", "/mnt/work/team-a")
    assert is_below("gcs://lake/work/team-a", "gs://lake/work")
    assert is_below("abfs://lake@store/work/team-a", "abfss://lake@store/work")
    assert not is_below("s3://lake/work/team-ab/july", "s3://lake/work/team-a")
    assert not is_below("s3://lake/work", "s3://lake/work/team-a")
