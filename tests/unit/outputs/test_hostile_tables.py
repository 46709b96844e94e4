"""A tenant whose catalog aims a table's locations at somebody else's files."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from backfill.api.errors import BackfillError, InvalidPlanInput
from backfill.outputs.cleanup import discard, discard_earlier, remove_orphans
from backfill.outputs.publication import publish
from backfill.outputs.staging import StagedBatch, remove_unused_metadata, stage_batch
from backfill.outputs.stored_files import OwnDirectory
from staged import RESULT, TABLE, WINDOW, make_table, output, rows_of, stage, write_files

pytestmark = pytest.mark.hostile


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A file of another team."""
    file = tmp_path / "team-b" / "part-0.parquet"
    file.parent.mkdir()
    file.write_bytes(b"theirs")
    return file


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
@pytest.mark.parametrize("end", ["?", "#", "?versionId=", "/../new", "\n"], ids=ascii)
def test_a_table_whose_location_libraries_read_differently_is_not_opened(
    lake: Catalog, theirs: Path, name: str, end: str
) -> None:
    table = make_table(lake)
    with table.transaction() as change:
        change.set_properties({name: f"file://{theirs.parent}/new{end}"})
    for use in (
        lambda: publish(output(), RESULT, WINDOW, None),
        lambda: remove_orphans(output(), RESULT, None),
        lambda: discard(TABLE, [RESULT], [None]),
    ):
        with pytest.raises(InvalidPlanInput, match=f"the {name} of lake"):
            use()
    assert theirs.read_bytes() == b"theirs"


def test_files_are_removed_only_where_the_location_leads_to_the_results_own_directory(
    lake: Catalog, theirs: Path
) -> None:
    with pytest.raises(BackfillError, match="where other files may be"):
        OwnDirectory(
            make_table(lake).io, f"file://{theirs.parent}?", "backfill/a-b-uid/out/result"
        ).files()
    assert theirs.exists()


@pytest.mark.parametrize("uid", ["x/../../team-b", "..", "x/./y", "x//y"])
def test_a_directory_is_a_results_own_only_without_what_clients_resolve(
    lake: Catalog, uid: str
) -> None:
    """Keys of an object store may have it, and some clients of HTTP take it out of the address."""
    with pytest.raises(BackfillError, match="where other files may be"):
        OwnDirectory(
            make_table(lake).io,
            "s3://lake/data",
            replace(RESULT, uid=uid, output="..").staging_path,
        ).files()


@pytest.mark.parametrize(
    "uid", ["x/../../../../team-b/data/backfill/b-july-1", "../../team-b", "x/."]
)
def test_an_earlier_result_is_not_looked_for_outside_of_the_tables_own_directory(
    lake: Catalog, tmp_path: Path, uid: str
) -> None:
    """Whoever can commit to a table says in a snapshot which Backfill made it."""
    table = make_table(lake)
    data = Path(table.location().removeprefix("file://")) / "data"
    mine = replace(RESULT, uid=uid)
    own = Path(os.path.normpath(data / mine.staging_path))
    for made in (data / f"backfill/streaming-rmi-{uid.partition('/')[0]}", own):
        made.mkdir(parents=True, exist_ok=True)
    (own / "part-0.parquet").write_bytes(b"theirs")
    stage_batch(table, mine, StagedBatch("q", 0, (), 0, 0))
    with pytest.raises(BackfillError, match="where other files may be"):
        discard_earlier(output(), RESULT)
    assert (own / "part-0.parquet").read_bytes() == b"theirs"


@pytest.mark.parametrize("linked", ["", "inside"])
def test_a_link_in_a_tables_directory_leads_nowhere(
    lake: Catalog, theirs: Path, linked: str
) -> None:
    table = make_table(lake)
    stage(table, 0, [(1, 0)])
    write_files(table, rows_of([(7, 0)], "a killed task"))
    directory = Path(RESULT.staging_directory(table.metadata).removeprefix("file://"))
    if linked:
        (directory / linked).symlink_to(theirs.parent)
        assert remove_orphans(output(), RESULT, None) == 1
    else:
        directory.rename(directory.with_name("moved"))
        directory.symlink_to(theirs.parent)
        with pytest.raises(BackfillError, match="where other files may be"):
            remove_orphans(output(), RESULT, None)
    assert theirs.read_bytes() == b"theirs"


def test_a_snapshot_that_calls_another_teams_file_a_manifest_does_not_get_it_removed(
    lake: Catalog, theirs: Path
) -> None:
    """Whoever can commit to a table can write any snapshot into it, also one that looks like a
    result's.
    """
    table = make_table(lake)
    stage(table, 0, [(1, 0)])
    table.refresh()
    head = table.metadata.snapshot_by_name(RESULT.branch)
    assert head is not None
    own = Path(head.manifest_list.removeprefix("file://"))
    table.manage_snapshots().remove_branch(RESULT.branch).commit()
    table.maintenance.expire_snapshots().by_id(head.snapshot_id).commit()
    forged = _snapshot(head, snapshot_id=7, manifest_list=head.manifest_list)
    remove_unused_metadata(
        table,
        forged,
        written=[f"file://{theirs}", str(theirs), f"{table.location()}/metadata/../../x"],
    )
    assert theirs.exists()
    assert not own.exists(), "the table's own are removed"


def _snapshot(head: Any, **fields: Any) -> Any:
    return head.model_copy(update=fields)


def test_tables_with_odd_but_clear_locations_are_opened(lake: Catalog, tmp_path: Path) -> None:
    table: Table = make_table(lake)
    with table.transaction() as change:
        change.set_properties({"write.data.path": f"file://{tmp_path}/a b/c=d%20e/ü"})
    stage(table.refresh(), 0, [(1, 0)])
    write_files(table, rows_of([(7, 0)], "a killed task"))
    assert remove_orphans(output(), RESULT, None) == 1
