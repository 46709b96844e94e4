"""A result that changes: the newest row of each key, or the last batch, is what is left of it, once,
whoever commits it and whatever is committed meanwhile.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from backfill.api.errors import CanNotPublish, ResultLost, RunFailed
from backfill.outputs.cleanup import remove_orphans
from backfill.outputs.publication import publish
from backfill.outputs.staging import Part, Staged, keep_newest, read_staged, staged_files
from staged import (
    HOUR_US,
    RESULT,
    WINDOW,
    Row,
    around_commit,
    content,
    expected,
    make_table,
    output,
    rows_of,
    stage,
    stage_as,
    write_files,
)

FIRST, SECOND = [(1, 0), (2, HOUR_US)], [(2, 2 * HOUR_US), (3, 0)]
NEWEST = [(1, 0), (2, 2 * HOUR_US), (3, 0)]


def head(table: Table) -> int:
    snapshot = table.refresh().snapshot_by_name(RESULT.branch)
    assert snapshot is not None
    return snapshot.snapshot_id


def keep(table: Table, rows: Sequence[Row], *, seen: int, outside: int = 0) -> bool:
    """Replaces the changes by rows that were read from a snapshot of the branch."""
    files = write_files(table, rows_of(rows, "backfill"))
    spec_id = table.spec().spec_id
    return keep_newest(table, RESULT, seen=seen, files=files, spec_id=spec_id, outside=outside)


def test_changes_are_only_added_each_batch_in_a_directory_of_its_own(lake: Catalog) -> None:
    table = make_table(lake, "hour")
    assert stage_as(table, "Changes", 0, FIRST, outside=1)
    assert stage_as(table, "Changes", 1, SECOND)
    assert not stage_as(table, "Changes", 1, SECOND), "a batch that is tried again"
    assert read_staged(table.metadata, RESULT) == Staged(
        rows=4, rows_outside_window=1, files=4, changes=True, parts={"query": Part(1)}
    )
    batches = {
        file.file_path: RESULT.batch_of(file.file_path) for file in staged_files(table, RESULT)
    }
    assert sorted(batches.values(), key=str) == [0, 0, 1, 1]
    stage(table, 2, [(9, 0)])
    assert {RESULT.batch_of(file.file_path) for file in staged_files(table, RESULT)} == {0, 1, None}


def test_what_batches_have_replaced_is_not_listed_for_ever(lake: Catalog) -> None:
    table = make_table(lake)
    for batch in range(5):
        stage_as(table, "Result", batch, FIRST)
    newest = table.refresh().snapshot_by_name(RESULT.branch)
    assert newest is not None
    assert len(newest.manifests(table.io)) == 2, "the last batch, and what it has replaced"


def test_the_newest_rows_replace_all_changes_in_one_commit(lake: Catalog) -> None:
    table = make_table(lake)
    stage_as(table, "Changes", 0, FIRST, outside=1)
    stage_as(table, "Changes", 1, SECOND)
    assert keep(table, NEWEST, seen=head(table), outside=2)
    assert content(table, RESULT.branch) == expected(NEWEST, "backfill")
    assert read_staged(table.metadata, RESULT) == Staged(
        rows=3, rows_outside_window=3, files=1, parts={"query": Part(1)}
    )
    assert len([s for s in table.snapshots() if s.snapshot_id == head(table)]) == 1
    assert len(table.snapshots()) == 1, "what was replaced is not kept"


def test_they_are_kept_once_also_if_the_answer_was_lost(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake)
    stage_as(table, "Changes", 0, FIRST)
    seen = head(table)

    def lose() -> None:
        raise ConnectionError("reset by peer")

    around_commit(monkeypatch, table, after=lose)
    assert not keep(table, FIRST, seen=seen), "found as done"
    assert not keep(table, FIRST, seen=seen), "by another attempt"
    assert content(table, RESULT.branch) == expected(FIRST, "backfill")


def test_a_commit_that_is_refused_because_production_writes_is_tried_again(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake)
    stage_as(table, "Changes", 0, FIRST)
    seen, other = head(table), load_catalog("lake").load_table("raw.out")
    around_commit(monkeypatch, table, before=lambda: other.append(rows_of([(9, 0)], "production")))
    assert keep(table, FIRST, seen=seen)
    assert content(table, RESULT.branch) == expected(FIRST, "backfill")
    assert content(table) == expected([(9, 0)], "production")


def test_rows_of_another_driver_are_not_lost_by_those_that_were_collected_before(
    lake: Catalog,
) -> None:
    table = make_table(lake)
    stage_as(table, "Changes", 0, FIRST)
    seen = head(table)
    stage_as(table, "Changes", 1, SECOND)
    with pytest.raises(RunFailed, match="another driver staged rows of output summary"):
        keep(table, FIRST, seen=seen)
    assert len(content(table, RESULT.branch)) == 4


def test_a_branch_that_was_dropped_is_lost(lake: Catalog) -> None:
    table = make_table(lake)
    stage_as(table, "Changes", 0, FIRST)
    seen = head(table)
    table.manage_snapshots().remove_branch(RESULT.branch).commit()
    with pytest.raises(ResultLost):
        keep(table, FIRST, seen=seen)


def test_later_batches_may_change_what_was_kept(lake: Catalog) -> None:
    table = make_table(lake)
    stage_as(table, "Changes", 0, FIRST)
    keep(table, FIRST, seen=head(table))
    stage_as(table, "Changes", 1, [])
    assert not read_staged(table.metadata, RESULT).changes, "a batch without rows changes nothing"
    stage_as(table, "Changes", 2, SECOND)
    assert read_staged(table.metadata, RESULT).changes
    assert {RESULT.batch_of(file.file_path) for file in staged_files(table, RESULT)} == {None, 2}


def test_a_whole_result_replaces_that_of_the_batch_before_and_no_other_output_s(
    lake: Catalog,
) -> None:
    table, other = make_table(lake, "hour"), replace(RESULT, output="other")
    stage(table, 0, [(7, 0)], result=other, who="other")
    stage_as(table, "Result", 0, FIRST, outside=5)
    stage_as(table, "Result", 1, SECOND, outside=3)
    assert not stage_as(table, "Result", 1, SECOND, outside=3)
    assert not stage_as(table, "Result", 0, FIRST), "a batch from before"
    assert content(table, RESULT.branch) == [
        *expected(SECOND, "backfill"),
        *expected([(7, 0)], "other"),
    ]
    assert read_staged(table.metadata, RESULT) == Staged(
        rows=2, rows_outside_window=3, files=2, parts={"query": Part(1)}
    )
    stage_as(table, "Result", 2, [])
    assert content(table, RESULT.branch) == expected([(7, 0)], "other")


def test_replaced_files_are_removed_after_the_run(lake: Catalog) -> None:
    table = make_table(lake)
    stage_as(table, "Changes", 0, FIRST)
    stage_as(table, "Changes", 1, SECOND)
    keep(table, NEWEST, seen=head(table))
    assert remove_orphans(output(), RESULT, None) == 2
    assert content(table, RESULT.branch) == expected(NEWEST, "backfill")


def test_changes_are_not_published(lake: Catalog) -> None:
    table = make_table(lake)
    stage_as(table, "Changes", 0, FIRST)
    with pytest.raises(CanNotPublish, match="still contains older rows with keys"):
        publish(output(), RESULT, WINDOW, None)
    assert content(table) == []
