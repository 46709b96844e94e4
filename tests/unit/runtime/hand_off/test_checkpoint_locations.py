"""Where checkpoints are put: locations that must be apart, and what is there already."""

from pathlib import Path
from typing import Any, cast

import pytest

from backfill.api.errors import UnsupportedProgram
from backfill.planning.workspace import Workspace
from backfill.runtime.hand_off.copy_checkpoint import (
    MARKER,
    Marker,
    Placement,
    _own,
    check_absolute,
    check_outlives,
    overlap,
)
from backfill.runtime.hand_off.hadoop_files import Files

MINE = Marker(uid="mine", plan_id="plan", query="sums")


class Found:
    """A location with files that a test names."""

    def __init__(self, files: dict[str, str]):
        self._files = files

    def names(self) -> list[str]:
        return list(self._files)

    def read(self, name: str) -> str:
        return self._files[name]


def own(tmp_path: Path, **files: str) -> Marker | None:
    placement = Placement("sums", MINE, "s3a://lake/sums", Workspace(str(tmp_path)), None)
    found: Any = Found({name.replace("marker", MARKER): text for name, text in files.items()})
    return _own(cast(Files, found), placement)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3a://lake/a", "s3a://lake/a/"),
        ("s3a://lake//a", "s3a://lake/a"),
        ("s3://lake/a", "s3a://lake/a/b"),
        ("file:///lake/a", "/lake/a"),
        ("s3a://lake/a/b", "s3a://lake/a"),
        ("s3a://lake", "s3a://lake/a"),
        ("s3n://lake/a", "s3a://lake/a"),
        ("s3a://lake/./a", "s3a://lake/a"),
        ("/lake/b/../a/c", "/lake/a"),
        ("file:/lake/a", "/lake//a"),
    ],
)
def test_locations_that_are_the_same_or_within_another(one: str, other: str) -> None:
    assert overlap(one, other)
    assert overlap(other, one)


def test_locations_that_are_apart() -> None:
    assert not overlap("s3a://lake/a", "s3a://lake/ab")
    assert not overlap("s3a://lake/a", "hdfs://lake/a")
    assert not overlap("s3a://lake/a/../b", "s3a://lake/a")


def test_a_driver_killed_while_it_wrote_the_marker_is_followed_by_another_try(
    tmp_path: Path,
) -> None:
    whole = MINE.model_dump_json(by_alias=True)
    assert own(tmp_path, marker=whole) == MINE
    for torn in ("", whole[:10]):
        assert own(tmp_path, marker=torn, metadata="{}") is None


def test_what_others_have_put_there_stays(tmp_path: Path) -> None:
    other = MINE.model_copy(update={"uid": "other"}).model_dump_json(by_alias=True)
    with pytest.raises(
        UnsupportedProgram, match=r"another Backfill.* or remove the state there if no"
    ):
        own(tmp_path, marker=other)
    with pytest.raises(
        UnsupportedProgram, match=r"is in use; give the query a new, empty .*n: the"
    ):
        own(tmp_path, metadata="{}")


@pytest.mark.parametrize("location", ["checkpoints/live/sums", "plans", ""])
def test_a_checkpoint_is_not_put_among_what_is_removed_with_the_backfill(
    tmp_path: Path, location: str
) -> None:
    workspace = "s3://lake/backfills/streaming/january"
    placed = Placement(
        "sums", MINE, f"s3a{workspace[2:]}/{location}", Workspace(str(tmp_path)), None
    )
    with pytest.raises(
        UnsupportedProgram, match="with the Backfill; give the query a checkpointLoc"
    ):
        check_outlives(placed, f"{workspace}/plans/0123")


def test_a_checkpoint_may_be_beside_the_workspace_of_a_backfill(tmp_path: Path) -> None:
    location = "s3a://lake/backfills/streaming/live/sums"
    placed = Placement("sums", MINE, location, Workspace(str(tmp_path)), None)
    check_outlives(placed, "s3://lake/backfills/streaming/january/plans/0123")


@pytest.mark.parametrize("location", ["sums", "./sums", "checkpoints/sums", "../s3://lake/sums"])
def test_a_location_that_depends_on_where_a_driver_runs_is_refused(location: str) -> None:
    placed = Placement("sums", MINE, location, Workspace("/unused"), None)
    with pytest.raises(UnsupportedProgram, match=r"is relative, .*; use an absolute location"):
        check_absolute(placed)


@pytest.mark.parametrize(
    "location", ["/lake/sums", "file:/lake/sums", "file:///lake", "s3a://lake/sums", "hdfs:/sums"]
)
def test_a_location_in_full_is_the_same_for_every_driver(location: str) -> None:
    check_absolute(Placement("sums", MINE, location, Workspace("/unused"), None))
