"""What a result leaves behind is removed, and nothing that anybody may still read."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from backfill.api.errors import BackfillError
from backfill.api.output import PublishMode
from backfill.outputs import referenced_files
from backfill.outputs.cleanup import discard, discard_earlier, remove_orphans
from backfill.outputs.output_tables import check_outputs
from backfill.outputs.publication import publish
from backfill.outputs.staging import keep_newest, staged_files
from staged import (
    DAY_US,
    HOUR_US,
    RESULT,
    TABLE,
    WINDOW,
    around_commit,
    content,
    expected,
    make_table,
    move_data,
    move_table,
    output,
    rows_of,
    stage,
    stage_as,
    write_files,
)

OLD, NEW = [(1, -HOUR_US), (2, 0), (3, DAY_US)], [(12, 0), (13, HOUR_US)]


def test_files_that_no_batch_committed_are_removed_and_the_others_stay(lake: Catalog) -> None:
    table = make_table(lake, "hour")
    stage(table, 0, NEW)
    stage(table, 0, NEW)
    write_files(table, rows_of([(7, 0)], "a killed task"))
    other = replace(RESULT, output="other")
    stage(table, 0, NEW, result=other)
    assert remove_orphans(output(), RESULT, None) == 3
    assert content(table, RESULT.branch) == sorted(expected(NEW, "backfill") * 2)
    assert remove_orphans(output(), RESULT, None) == 0


def test_without_a_branch_no_file_counts_as_left_behind(lake: Catalog) -> None:
    table = make_table(lake)
    write_files(table, rows_of(NEW, "backfill"))
    assert remove_orphans(output(), RESULT, None) == 0


def test_discarding_a_result_leaves_the_table_as_it_was(lake: Catalog, tmp_path: Path) -> None:
    table, base = _production(lake)
    before = _files(tmp_path)
    stage(table, 0, NEW)
    stage(table, 1, [(14, 0)])
    write_files(table, rows_of([(7, 0)], "a killed task"))
    discard(TABLE, [RESULT], [base])
    assert _files(tmp_path) == before
    table.refresh()
    assert set(table.metadata.refs) == {"main"}
    assert [snapshot.snapshot_id for snapshot in table.metadata.snapshots] == [base]
    assert content(table) == expected(OLD, "production")


def test_discarding_twice_or_without_a_result_is_fine(lake: Catalog) -> None:
    table, base = _production(lake)
    discard(TABLE, [RESULT], [base])
    stage(table.refresh(), 0, NEW)
    discard(TABLE, [RESULT], [base])
    discard(TABLE, [RESULT], [base])
    assert content(table) == expected(OLD, "production")


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_discarding_a_published_result_keeps_the_rows_in_the_table(
    lake: Catalog, mode: PublishMode
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    publish(output(mode), RESULT, WINDOW, base)
    published = content(table)
    discard(TABLE, [RESULT], [base])
    assert content(table) == published
    assert set(table.metadata.refs) == {"main"}


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_a_result_that_is_published_right_before_its_branch_goes_keeps_its_files(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, mode: PublishMode
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    around_commit(monkeypatch, table, before=lambda: publish(output(mode), RESULT, WINDOW, base))
    discard(TABLE, [RESULT], [base])
    assert set(expected(NEW, "backfill")) < set(content(table))
    assert set(table.metadata.refs) == {"main"}


def test_a_published_result_whose_snapshot_has_expired_keeps_its_files(lake: Catalog) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    snapshot = publish(output(), RESULT, WINDOW, base).snapshot_id
    table.refresh().append(rows_of([(30, 3 * DAY_US)], "production"))
    table.maintenance.expire_snapshots().by_ids([base, snapshot]).commit()
    published = content(table)
    discard(TABLE, [RESULT], [base])
    assert content(table) == published
    assert RESULT.branch not in table.metadata.refs


def test_a_published_result_that_was_rolled_back_keeps_its_files(lake: Catalog) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    snapshot = publish(output(), RESULT, WINDOW, base).snapshot_id
    table.refresh().manage_snapshots().rollback_to_snapshot(base).commit()
    discard(TABLE, [RESULT], [base])
    rows = table.refresh().scan(snapshot_id=snapshot).to_arrow()
    assert sorted(rows["id"].to_pylist()) == [1, 3, 12, 13]


def test_what_an_earlier_backfill_of_this_name_left_makes_room_and_what_it_published_stays(
    lake: Catalog,
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    publish(output(), RESULT, WINDOW, base)
    published = sorted(table.refresh().scan().to_arrow()["id"].to_pylist())
    again = replace(RESULT, uid="second")
    discard_earlier(output(), again)
    assert RESULT.branch not in table.refresh().metadata.refs
    discard_earlier(output(), again)
    now = table.metadata.current_snapshot_id
    stage(table, 0, NEW, result=again)
    remove_orphans(output(), again, None)
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == published
    assert not publish(output(), again, WINDOW, now).already
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == published


@pytest.mark.parametrize("place", ["the cluster with certificate authority 1f", ""])
def test_a_backfill_of_this_name_that_is_stored_elsewhere_is_not_an_earlier_one(
    lake: Catalog, place: str
) -> None:
    table = make_table(lake)
    stage(table, 0, NEW, result=replace(RESULT, kept_in="/home/a/.backfill on laptop"))
    staged = content(table, RESULT.branch)
    here = replace(RESULT, uid="second", kept_in=place)
    (problem,) = check_outputs([output()], [here], WINDOW)
    assert "Backfill streaming/rmi in /home/a/.backfill on laptop; delete that" in str(problem)
    discard_earlier(output(), here)
    assert content(table.refresh(), RESULT.branch) == staged
    not_stored = replace(here, uid="")
    assert not check_outputs([output()], [not_stored], WINDOW), "it may be meant for that place"


def test_an_earlier_backfill_of_the_same_place_makes_room_after_its_newest_keys_were_collected(
    lake: Catalog,
) -> None:
    first = replace(RESULT, kept_in="/home/a/.backfill on laptop")
    table = make_table(lake)
    stage_as(table, "Changes", 0, NEW, result=first)
    head = table.refresh().metadata.snapshot_by_name(RESULT.branch)
    assert head is not None
    newest = {"seen": head.snapshot_id, "files": [], "spec_id": 0, "outside": 0}
    assert keep_newest(table, first, **newest)
    discard_earlier(output(), replace(first, uid="second"))
    assert RESULT.branch not in table.refresh().metadata.refs


def test_a_branch_of_somebody_else_is_not_dropped(lake: Catalog) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    discard(TABLE, [replace(RESULT, uid="another")], [base])
    assert content(table, RESULT.branch) == expected(NEW, "backfill")


def _add_files(table: Table) -> None:
    table.add_files([file.file_path for file in staged_files(table, RESULT)])


def _add_files_by_uri(table: Table) -> None:
    table.add_files([f"file://{file.file_path}" for file in staged_files(table, RESULT)])


def _cherry_pick(table: Table) -> None:
    """As Spark's procedure does: the files of the branch's snapshot, in a manifest of the table's
    own.
    """
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in staged_files(table, RESULT):
            append.append_data_file(file)


def _fast_forward(table: Table) -> None:
    """The table's next snapshots list the manifests of the branch."""
    table.manage_snapshots().set_current_snapshot(ref_name=RESULT.branch).commit()


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize(
    "publish_by_hand", [_add_files, _add_files_by_uri, _cherry_pick, _fast_forward]
)
def test_rows_that_somebody_published_by_hand_stay(
    lake: Catalog, publish_by_hand: Callable[[Table], None], version: str
) -> None:
    table, base = _production(lake, **{"format-version": version})
    stage(table, 0, NEW)
    publish_by_hand(table.refresh())
    table.refresh().append(rows_of([(30, 3 * DAY_US)], "production"))
    rows = content(table)
    stage(table.refresh(), 1, [(14, 0)])
    assert content(table) == rows
    discard(TABLE, [RESULT], [base])
    assert content(table) == rows
    assert {number for number, *_ in rows} >= {12, 13, 30}
    _expire_history(table)
    discard(TABLE, [RESULT], [base])
    assert content(table) == rows


@pytest.mark.parametrize("hold", ["create_tag", "create_branch"])
def test_rows_that_somebody_holds_by_a_tag_or_branch_stay(lake: Catalog, hold: str) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    getattr(table.manage_snapshots(), hold)(
        table.metadata.refs[RESULT.branch].snapshot_id, "look"
    ).commit()
    stage(table.refresh(), 1, [(14, 0)])
    discard(TABLE, [RESULT], [base])
    assert content(table, "look") == expected(NEW, "backfill")
    assert set(table.metadata.refs) == {"main", "look"}


def test_rows_added_by_hand_right_before_the_branch_goes_stay(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    other = load_catalog("lake").load_table("raw.out")
    around_commit(monkeypatch, table, before=lambda: _add_files(other))
    discard(TABLE, [RESULT], [base])
    assert content(table) == expected(OLD, "production") + expected(NEW, "backfill")


def test_rows_added_by_hand_while_the_table_is_read_stay(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    staged, other, read = (
        staged_files(table.refresh(), RESULT),
        load_catalog("lake").load_table("raw.out"),
        referenced_files.live_files,
    )

    def read_slowly(of: Table, manifest: ManifestFile) -> list[str]:
        if RESULT.branch not in other.refresh().metadata.refs:
            monkeypatch.setattr(referenced_files, "live_files", read)
            other.add_files([file.file_path for file in staged])
        return list(read(of, manifest))

    table.refresh().append(rows_of([(30, 3 * DAY_US)], "production"))
    around_commit(
        monkeypatch,
        table,
        after=lambda: other.refresh().append(rows_of([(31, 3 * DAY_US)], "production")),
    )
    monkeypatch.setattr(referenced_files, "live_files", read_slowly)
    discard(TABLE, [RESULT], [base])
    assert set(expected(NEW, "backfill")) <= set(content(table))


def test_files_that_were_published_by_hand_and_deleted_again_do_not_stay_for_ever(
    lake: Catalog, tmp_path: Path
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    _cherry_pick(table.refresh())
    added = table.refresh().metadata.current_snapshot_id
    table.delete("who = 'backfill'")
    assert added is not None
    table.maintenance.expire_snapshots().by_id(added).commit()
    discard(TABLE, [RESULT], [base])
    assert not [path for path in _files(tmp_path) if "rmi" in str(path)]
    assert content(table) == expected(OLD, "production")


def test_rows_kept_by_a_publication_that_was_killed_do_not_stay_for_ever(lake: Catalog) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    kept = Path(RESULT.kept_directory(table.metadata)) / "written-anew.parquet"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"")
    discard(TABLE, [RESULT], [base])
    assert not kept.exists()


def test_what_one_output_published_before_another_one_began_stays(lake: Catalog) -> None:
    table = make_table(lake)
    stage(table, 0, NEW)
    publish(output(), RESULT, WINDOW, None)
    later = table.refresh().metadata.current_snapshot_id
    discard(TABLE, [RESULT, replace(RESULT, output="later")], [None, later])
    assert content(table) == expected(NEW, "backfill")


def test_what_an_earlier_backfill_published_stays_when_the_history_of_it_has_expired(
    lake: Catalog,
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    publish(output(), RESULT, WINDOW, base)
    table.refresh().append(rows_of([(30, 3 * DAY_US)], "production"))
    _expire_history(table)
    published = content(table)
    discard_earlier(output(), replace(RESULT, uid="second"))
    assert content(table) == published
    assert RESULT.branch not in table.metadata.refs


def test_what_was_published_into_an_empty_table_stays_when_the_history_of_it_has_expired(
    lake: Catalog,
) -> None:
    table = make_table(lake)
    stage(table, 0, NEW)
    publish(output(), RESULT, WINDOW, None)
    table.refresh().append(rows_of([(30, 3 * DAY_US)], "production"))
    _expire_history(table)
    published = content(table)
    discard(TABLE, [RESULT], [None])
    assert content(table) == published


def test_nothing_is_removed_while_it_is_unknown_what_the_table_uses(
    lake: Catalog, tmp_path: Path
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    write_files(table, rows_of([(7, 0)], "a killed task"))
    table.append(rows_of([(30, 3 * DAY_US)], "production"))
    current = table.current_snapshot()
    assert current is not None
    unreadable, files = Path(current.manifests(table.io)[0].manifest_path), _files(tmp_path)
    manifest = unreadable.read_bytes()
    unreadable.unlink()
    for clean_up in (
        lambda: discard(TABLE, [RESULT], [base]),
        lambda: remove_orphans(output(), RESULT, base),
    ):
        with pytest.raises(
            BackfillError,
            match=f"{unreadable.name} cannot be read: .* No files were removed below /",
        ):
            clean_up()
    assert _files(tmp_path) == files - {unreadable}
    assert content(table, RESULT.branch) == expected(NEW, "backfill")
    unreadable.write_bytes(manifest)
    discard(TABLE, [RESULT], [base])
    assert RESULT.branch not in table.refresh().metadata.refs
    assert not [path for path in _files(tmp_path) if "rmi" in str(path)]


def test_of_the_history_from_before_the_run_nothing_is_read(lake: Catalog, tmp_path: Path) -> None:
    table, base = _production(lake)
    old = table.current_snapshot()
    assert old is not None
    stage(table, 0, NEW)
    for path in (old.manifest_list, old.manifests(table.io)[0].manifest_path):
        Path(path).unlink()
    discard(TABLE, [RESULT], [base])
    assert not [path for path in _files(tmp_path) if "rmi" in str(path)]


@pytest.mark.parametrize("move", [move_data, move_table])
def test_after_the_data_has_moved_nothing_is_left_where_it_was(
    lake: Catalog, tmp_path: Path, move: Callable[[Table, Path], None]
) -> None:
    table, base = _production(lake)
    other = replace(RESULT, output="other")
    stage(table, 0, NEW)
    stage(table, 0, NEW, result=other)
    write_files(table, rows_of([(7, 0)], "a killed task"))
    move(table, tmp_path)
    stage(table.refresh(), 1, [(14, 0)])
    assert remove_orphans(output(), RESULT, base) == 1
    assert len(content(table, RESULT.branch)) == 5
    discard(TABLE, [RESULT, other], [base, base])
    assert not [path for path in tmp_path.rglob("*.parquet") if "rmi" in str(path)]
    assert content(table) == expected(OLD, "production")


def _expire_history(table: Table) -> None:
    """Everything but the heads of branches and tags, which leaves the main branch's snapshot
    without a parent.
    """
    table.refresh().maintenance.expire_snapshots().older_than(
        datetime.now(UTC) + timedelta(days=1)
    ).commit()
    current = table.refresh().current_snapshot()
    assert current is not None and current.parent_snapshot_id is None


def _production(lake: Catalog, **properties: str) -> tuple[Table, int]:
    table = make_table(lake, **properties)
    table.append(rows_of(OLD, "production"))
    assert table.metadata.current_snapshot_id is not None
    return table, table.metadata.current_snapshot_id


def _files(tmp_path: Path) -> set[Path]:
    return {
        path for path in (tmp_path / "warehouse").rglob("*") if path.suffix in {".parquet", ".avro"}
    }
