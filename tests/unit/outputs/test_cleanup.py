"""What a result leaves behind is removed, and nothing that anybody may still read."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from backfill.api.backfill import PublishMode
from backfill.outputs.cleanup import discard, discard_earlier, remove_orphans
from backfill.outputs.publish import publish
from staged import (
    DAY_US,
    HOUR_US,
    RESULT,
    WINDOW,
    around_commit,
    content,
    expected,
    make_table,
    output,
    rows_of,
    stage,
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
    assert remove_orphans(output(), RESULT) == 3
    assert content(table, RESULT.branch) == sorted(expected(NEW, "backfill") * 2)
    assert remove_orphans(output(), RESULT) == 0


def test_without_a_branch_no_file_counts_as_left_behind(lake: Catalog) -> None:
    table = make_table(lake)
    write_files(table, rows_of(NEW, "backfill"))
    assert remove_orphans(output(), RESULT) == 0


def test_discarding_a_result_leaves_the_table_as_it_was(lake: Catalog, tmp_path: Path) -> None:
    table, base = _production(lake)
    before = _files(tmp_path)
    stage(table, 0, NEW)
    stage(table, 1, [(14, 0)])
    write_files(table, rows_of([(7, 0)], "a killed task"))
    discard(output(), RESULT, base)
    assert _files(tmp_path) == before
    table.refresh()
    assert set(table.metadata.refs) == {"main"}
    assert [snapshot.snapshot_id for snapshot in table.metadata.snapshots] == [base]
    assert content(table) == expected(OLD, "production")


def test_discarding_twice_or_without_a_result_is_fine(lake: Catalog) -> None:
    table, base = _production(lake)
    discard(output(), RESULT, base)
    stage(table.refresh(), 0, NEW)
    discard(output(), RESULT, base)
    discard(output(), RESULT, base)
    assert content(table) == expected(OLD, "production")


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_discarding_a_published_result_keeps_the_rows_in_the_table(lake: Catalog, mode: PublishMode) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    publish(output(mode), RESULT, WINDOW, base)
    published = content(table)
    discard(output(mode), RESULT, base)
    assert content(table) == published
    assert set(table.metadata.refs) == {"main"}


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_a_result_that_is_published_right_before_its_branch_goes_keeps_its_files(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, mode: PublishMode
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    around_commit(monkeypatch, table, before=lambda: publish(output(mode), RESULT, WINDOW, base))
    discard(output(mode), RESULT, base)
    assert set(expected(NEW, "backfill")) < set(content(table))
    assert set(table.metadata.refs) == {"main"}


def test_a_published_result_whose_snapshot_has_expired_keeps_its_files(lake: Catalog) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    snapshot = publish(output(), RESULT, WINDOW, base).snapshot_id
    table.refresh().append(rows_of([(30, 3 * DAY_US)], "production"))
    table.maintenance.expire_snapshots().by_ids([base, snapshot]).commit()
    published = content(table)
    discard(output(), RESULT, base)
    assert content(table) == published
    assert RESULT.branch not in table.metadata.refs


def test_a_published_result_that_was_rolled_back_keeps_its_files(lake: Catalog) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    snapshot = publish(output(), RESULT, WINDOW, base).snapshot_id
    table.refresh().manage_snapshots().rollback_to_snapshot(base).commit()
    discard(output(), RESULT, base)
    rows = table.refresh().scan(snapshot_id=snapshot).to_arrow()
    assert sorted(rows["id"].to_pylist()) == [1, 3, 12, 13]


def test_what_an_earlier_backfill_of_this_name_left_makes_room_and_what_it_published_stays(lake: Catalog) -> None:
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
    remove_orphans(output(), again)
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == published
    assert not publish(output(), again, WINDOW, now).already
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == published


def test_a_branch_of_somebody_else_is_not_dropped(lake: Catalog) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    discard(output(), replace(RESULT, uid="another"), base)
    assert content(table, RESULT.branch) == expected(NEW, "backfill")


def _production(lake: Catalog) -> tuple[Table, int]:
    table = make_table(lake)
    table.append(rows_of(OLD, "production"))
    assert table.metadata.current_snapshot_id is not None
    return table, table.metadata.current_snapshot_id


def _files(tmp_path: Path) -> set[Path]:
    return {path for path in (tmp_path / "warehouse").rglob("*") if path.suffix in {".parquet", ".avro"}}
