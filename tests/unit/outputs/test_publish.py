"""A result comes into its table in one commit, once, and never over something it was not checked
against.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.types import NestedField, StringType, StructType, TimestampType

from backfill.api.errors import BackfillError, CanNotPublish, PublishConflict, ResultLost
from backfill.api.output import PublishMode
from backfill.controller.jobs.kinds.publish import PublishJob
from backfill.controller.jobs.staged_outputs import StagedOutput
from backfill.outputs.cleanup import discard
from backfill.outputs.publication import OutputState, check_publishable, output_state, publish
from backfill.outputs.result_names import Result
from backfill.outputs.staging import staged_files
from backfill.outputs.table_commits import commit
from iceberg_tables import commit_files, data_file
from staged import (
    DAY_START_US,
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
    stage_rows,
    write_files,
)

OLD = [(1, -HOUR_US), (2, 0), (3, DAY_US - 1), (4, DAY_US), (5, None)]
"""Of production: before, first and last moment of, after, and not in the window."""
STAY = [(1, -HOUR_US), (4, DAY_US), (5, None)]
NEW = [(12, 0), (13, HOUR_US)]


def test_replace_takes_the_window_and_nothing_else_in_one_snapshot(lake: Catalog) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    published = publish(output(), RESULT, WINDOW, base)
    assert content(table) == expected(STAY, "production") + expected(NEW, "backfill")
    assert (published.rows, published.already) == (2, False)
    assert [entry.snapshot_id for entry in table.history()] == [base, published.snapshot_id]


@pytest.mark.parametrize("partition", ["hour", "day", "month", "identity", "bucket[4]"])
def test_replace_works_on_tables_partitioned(lake: Catalog, partition: str) -> None:
    table, base = _production(lake, OLD, partition)
    stage(table, 0, NEW)
    publish(output(), RESULT, WINDOW, base)
    assert content(table) == expected(STAY, "production") + expected(NEW, "backfill")


def test_append_adds_to_what_is_there(lake: Catalog) -> None:
    table, base = _production(lake, STAY)
    stage(table, 0, NEW)
    published = publish(output(PublishMode.APPEND), RESULT, WINDOW, base)
    assert content(table) == expected(STAY, "production") + expected(NEW, "backfill")
    assert published.rows == 2


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_a_table_that_had_no_snapshot_gets_its_first(lake: Catalog, mode: PublishMode) -> None:
    table = make_table(lake, "day")
    stage(table, 0, NEW)
    publish(output(mode), RESULT, WINDOW, None)
    assert content(table) == expected(NEW, "backfill")


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_publishing_again_finds_what_was_published(lake: Catalog, mode: PublishMode) -> None:
    table, base = _production(lake, STAY)
    stage(table, 0, NEW)
    first = publish(output(mode), RESULT, WINDOW, base)
    table.refresh().append(rows_of([(20, HOUR_US)], "production"))
    again = publish(output(mode), RESULT, WINDOW, base)
    assert (again.snapshot_id, again.rows, again.already) == (first.snapshot_id, 2, True)
    assert len(content(table)) == 6


@pytest.mark.parametrize(
    "error",
    [ConnectionError("reset by peer"), CommitFailedException("changed, by the same request")],
)
def test_a_commit_whose_answer_was_lost_is_not_made_again(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    around_commit(monkeypatch, table, after=lambda: _raise(error))
    publish(output(), RESULT, WINDOW, base)
    assert content(table) == expected(STAY, "production") + expected(NEW, "backfill")
    assert len(table.history()) == 2


def test_production_may_append_live_rows_during_the_run_and_the_commit(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    other = load_catalog("lake").load_table("raw.out")
    other.append(rows_of([(30, 3 * DAY_US)], "production"))
    around_commit(
        monkeypatch, table, before=lambda: other.append(rows_of([(31, 4 * DAY_US)], "production"))
    )
    publish(output(), RESULT, WINDOW, base)
    live = expected([(30, 3 * DAY_US), (31, 4 * DAY_US)], "production")
    assert content(table) == expected(STAY, "production") + expected(NEW, "backfill") + live


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_rows_appended_to_the_window_are_a_conflict_that_names_the_snapshot(
    lake: Catalog, mode: PublishMode
) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    table.append(rows_of([(30, 3 * DAY_US)], "production"))
    table.append(rows_of([(31, HOUR_US)], "production"))
    with pytest.raises(
        PublishConflict,
        match=(
            rf"changed in the window .* snapshot {table.metadata.current_snapshot_id} \(append at"
        ),
    ):
        publish(output(mode), RESULT, WINDOW, base)
    assert len(table.refresh().history()) == 3


def test_a_conflict_between_look_and_commit_is_seen(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    other = load_catalog("lake").load_table("raw.out")
    around_commit(
        monkeypatch, table, before=lambda: other.append(rows_of([(31, HOUR_US)], "production"))
    )
    with pytest.raises(PublishConflict):
        publish(output(), RESULT, WINDOW, base)
    assert content(table) == expected([*OLD, (31, HOUR_US)], "production")


def test_rows_deleted_from_the_window_are_a_conflict(lake: Catalog) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    table.delete("id == 2")
    with pytest.raises(PublishConflict, match="overwrite at"):
        publish(output(), RESULT, WINDOW, base)


def test_rows_deleted_outside_the_window_are_none(lake: Catalog) -> None:
    table, base = _production(lake, OLD, "day")
    stage(table, 0, NEW)
    table.delete("id == 4")
    publish(output(), RESULT, WINDOW, base)
    assert content(table) == expected([(1, -HOUR_US), (5, None)], "production") + expected(
        NEW, "backfill"
    )


def test_a_base_that_has_expired_is_a_conflict_that_says_so(lake: Catalog) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    table.append(rows_of([(30, 3 * DAY_US)], "production"))
    table.maintenance.expire_snapshots().by_id(base).commit()
    with pytest.raises(PublishConflict, match=f"snapshot {base}, .* is no longer in its history"):
        publish(output(), RESULT, WINDOW, base)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_rows_added_to_an_empty_table_are_a_conflict_when_the_snapshot_that_added_them_has_expired(
    lake: Catalog, mode: PublishMode, version: str
) -> None:
    table = make_table(lake, **{"format-version": version})
    stage(table, 0, NEW)
    table.append(rows_of([(30, HOUR_US), (31, 2 * DAY_US)], "production"))
    added = table.metadata.current_snapshot_id
    assert added is not None
    table.append(rows_of([(32, 3 * DAY_US)], "production"))
    table.maintenance.expire_snapshots().by_id(added).commit()
    with pytest.raises(
        PublishConflict,
        match=f"changed in the window .*: snapshot {added}, which has expired; check",
    ):
        publish(output(mode), RESULT, WINDOW, None)
    assert len(content(table)) == 3


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_rows_added_to_an_empty_table_outside_the_window_are_none_whatever_has_expired(
    lake: Catalog, mode: PublishMode
) -> None:
    table = make_table(lake)
    stage(table, 0, NEW)
    around = [(30, -HOUR_US), (31, 2 * DAY_US), (32, None)]
    table.append(rows_of(around, "production"))
    table.append(rows_of([(33, HOUR_US)], "deleted again"))
    table.delete("id == 33")
    _keep_only_current(table)
    publish(output(mode), RESULT, WINDOW, None)
    assert content(table) == expected(NEW, "backfill") + expected(around, "production")


def test_a_result_whose_publishing_snapshot_has_expired_is_not_appended_twice(
    lake: Catalog,
) -> None:
    table = make_table(lake)
    stage(table, 0, NEW)
    publish(output(PublishMode.APPEND), RESULT, WINDOW, None)
    table.refresh().append(rows_of([(30, 3 * DAY_US)], "production"))
    _keep_only_current(table)
    with pytest.raises(
        CanNotPublish, match="already contains 1 of the 1 file staged for output summary"
    ):
        publish(output(PublishMode.APPEND), RESULT, WINDOW, None)
    assert len(content(table)) == 3


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
@pytest.mark.parametrize("column", ["ts", None])
def test_a_result_that_somebody_published_by_hand_is_not_published_again(
    lake: Catalog, mode: PublishMode, column: str | None
) -> None:
    table, base = _production(lake, STAY)
    stage(table, 0, NEW)
    stage(table, 1, [(14, 0)])
    table.add_files([staged_files(table, RESULT)[0].file_path])
    by_hand = content(table)
    with pytest.raises(
        CanNotPublish,
        match=r"already contains 1 of the 2 files staged for output summary: .* by hand",
    ):
        publish(output(mode, timestamp_column=column), RESULT, WINDOW, base)
    assert content(table) == by_hand


def test_two_backfills_of_different_days_publish_one_after_the_other(lake: Catalog) -> None:
    table, base = _production(lake, OLD, "day")
    stage(table, 0, NEW)
    table.append(rows_of([(40, -5 * HOUR_US)], "another backfill"))
    publish(output(), RESULT, WINDOW, base)
    assert len(content(table)) == 6


def test_an_empty_result_does_not_empty_the_window(lake: Catalog) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, [], outside=9)
    with pytest.raises(CanNotPublish, match="has no rows in the window"):
        publish(output(), RESULT, WINDOW, base)
    assert content(table) == expected(OLD, "production")


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_an_empty_result_is_published_where_nothing_is_in_the_window(
    lake: Catalog, mode: PublishMode
) -> None:
    table, base = _production(lake, STAY)
    stage(table, 0, [], outside=9)
    published = publish(output(mode), RESULT, WINDOW, base)
    assert (published.rows, published.already) == (0, False)
    assert publish(output(mode), RESULT, WINDOW, base).already
    assert content(table) == expected(STAY, "production")


def test_replace_without_a_column_that_tells_the_window_changes_nothing(lake: Catalog) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    with pytest.raises(
        CanNotPublish, match="has no timestampColumn, so it is unknown which rows to replace"
    ):
        publish(output(timestamp_column=None), RESULT, WINDOW, base)
    assert content(table) == expected(OLD, "production")


def test_append_without_a_column_that_tells_the_window_adds_the_result(lake: Catalog) -> None:
    table, base = _production(lake, STAY)
    stage(table, 0, NEW)
    table.append(rows_of([(30, HOUR_US)], "production"))
    publish(output(PublishMode.APPEND, timestamp_column=None), RESULT, WINDOW, base)
    assert content(table) == expected(STAY, "production") + expected(NEW, "backfill") + expected(
        [(30, HOUR_US)], "production"
    )


def test_a_compaction_is_no_conflict_and_its_files_are_replaced(lake: Catalog) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    _compact(table)
    publish(output(), RESULT, WINDOW, base)
    assert content(table) == expected(STAY, "production") + expected(NEW, "backfill")


def test_tables_of_format_version_1_are_staged_to_and_published(lake: Catalog) -> None:
    table = make_table(lake, "day", **{"format-version": "1"})
    table.append(rows_of(OLD, "production"))
    base = table.metadata.current_snapshot_id
    stage(table, 0, NEW[:1])
    stage(table, 1, NEW[1:])
    publish(output(), RESULT, WINDOW, base)
    assert table.format_version == 1
    assert content(table) == expected(STAY, "production") + expected(NEW, "backfill")


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_a_branch_that_was_dropped_is_a_result_that_is_lost(
    lake: Catalog, mode: PublishMode
) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    table.manage_snapshots().remove_branch(RESULT.branch).commit()
    with pytest.raises(
        ResultLost, match=r"no longer in branch backfill/streaming/rmi of lake\.raw\.out"
    ):
        publish(output(mode), RESULT, WINDOW, base)
    assert content(table) == expected(OLD, "production")


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_a_result_that_is_discarded_right_before_its_commit_is_lost_and_no_commit_refers_to_it(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, mode: PublishMode
) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    around_commit(monkeypatch, table, before=lambda: discard(TABLE, [RESULT], [base]))
    with pytest.raises(ResultLost):
        publish(output(mode), RESULT, WINDOW, base)
    assert content(table) == expected(OLD, "production")


def test_a_batch_that_is_staged_right_before_the_commit_is_not_left_out_of_it(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    other = load_catalog("lake").load_table("raw.out")
    around_commit(monkeypatch, table, before=lambda: stage(other, 1, [(14, 0)]))
    with pytest.raises(BackfillError, match="was changed while it was published"):
        publish(output(), RESULT, WINDOW, base)
    assert publish(output(), RESULT, WINDOW, base).rows == 3


def test_a_partitioning_changed_after_staging_keeps_the_files_of_the_old_one(lake: Catalog) -> None:
    table, base = _production(lake, OLD, "day")
    stage(table, 0, NEW)
    with table.update_spec() as update:
        update.remove_field("part")
    publish(output(), RESULT, WINDOW, base)
    assert content(table) == expected(STAY, "production") + expected(NEW, "backfill")
    assert {row["part"] for row in table.inspect.files()["partition"].to_pylist()} != {None}


def test_a_partitioning_changed_between_attempts_is_refused(lake: Catalog) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    with table.update_spec() as update:
        update.add_identity("who")
    stage(table, 1, [(14, 0)])
    with pytest.raises(
        CanNotPublish, match=r"partitioning of lake\.raw\.out was changed between two attempts"
    ):
        publish(output(), RESULT, WINDOW, base)


def test_columns_added_and_renamed_after_staging_are_no_obstacle(lake: Catalog) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    with table.update_schema() as update:
        update.add_column("more", StringType())
        update.rename_column("who", "whose")
    publish(output(), RESULT, WINDOW, base)
    rows = table.refresh().scan().to_arrow()
    assert sorted(zip(rows["id"].to_pylist(), rows["whose"].to_pylist(), strict=True)) == [
        (1, "production"), (4, "production"), (5, "production"), (12, "backfill"), (13, "backfill")
    ]  # fmt: skip


def test_rows_that_were_deleted_by_position_do_not_come_back(lake: Catalog) -> None:
    table, _ = _production(lake, [*OLD, (6, 2 * DAY_US)])
    base = _delete(table, DataFileContent.POSITION_DELETES)
    stage(table, 0, NEW)
    publish(output(), RESULT, WINDOW, base)
    assert content(table) == expected(
        [(4, DAY_US), (5, None), (6, 2 * DAY_US)], "production"
    ) + expected(NEW, "backfill")


def test_equality_deletes_in_the_window_are_refused(lake: Catalog) -> None:
    table, _ = _production(lake, OLD)
    base = _delete(table, DataFileContent.EQUALITY_DELETES)
    stage(table, 0, NEW)
    with pytest.raises(BackfillError, match="has equality deletes in the window"):
        publish(output(), RESULT, WINDOW, base)


def test_a_nested_column_without_statistics_is_read(lake: Catalog) -> None:
    meta = StructType(NestedField(11, "at", TimestampType()))
    table = make_table(
        lake, columns=Schema(NestedField(1, "id", StringType()), NestedField(2, "meta", meta))
    )
    for number, offset in enumerate((-HOUR_US, HOUR_US, DAY_US)):
        table.append(_nested(f"old {number}", offset))
    base = table.metadata.current_snapshot_id
    table.append(_nested("live", 2 * DAY_US))
    nested = output(timestamp_column="meta.at")
    stage_rows(table, 0, _nested("new", HOUR_US))
    publish(nested, RESULT, WINDOW, base)
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [
        "live",
        "new",
        "old 0",
        "old 2",
    ]


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
@pytest.mark.parametrize("move", [move_data, move_table])
def test_rows_staged_before_the_data_moved_are_published_with_those_after(
    lake: Catalog, tmp_path: Path, mode: PublishMode, move: Callable[[Table, Path], None]
) -> None:
    table, base = _production(lake, STAY)
    stage(table, 0, NEW[:1])
    move(table, tmp_path)
    stage(table.refresh(), 1, NEW[1:])
    move_data(table.refresh(), tmp_path / "again")
    assert publish(output(mode), RESULT, WINDOW, base).rows == 2
    assert content(table) == expected(STAY, "production") + expected(NEW, "backfill")


@pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
def test_fewer_rows_than_were_staged_are_not_published(lake: Catalog, mode: PublishMode) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    head = table.metadata.snapshot_by_name(RESULT.branch)
    assert head is not None and head.summary is not None
    own = {
        key: value
        for key, value in head.summary.additional_properties.items()
        if key.startswith("backfill.")
    }
    table.delete("id == 12", snapshot_properties=own, branch=RESULT.branch)
    with pytest.raises(
        CanNotPublish,
        match=r"contains 0 rows of output summary \(files: 0\), but 2 rows \(files: 1\) had been staged",
    ):
        publish(output(mode), RESULT, WINDOW, base)
    assert content(table) == expected(OLD, "production")


def test_the_state_tells_how_far_an_output_is(lake: Catalog) -> None:
    table, base = _production(lake, OLD)
    assert output_state(output(), RESULT) == OutputState(base, None, 0, 0, False, None, None)
    stage(table, 0, NEW, outside=3)
    staged = table.refresh().metadata.refs[RESULT.branch].snapshot_id
    assert output_state(output(), RESULT) == OutputState(
        base, RESULT.branch, 2, 3, True, staged, None
    )
    snapshot = publish(output(), RESULT, WINDOW, base).snapshot_id
    assert output_state(output(), RESULT) == OutputState(
        snapshot, RESULT.branch, 2, 3, True, staged, snapshot
    )


def test_what_is_published_is_what_was_counted(lake: Catalog) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    counted = table.refresh().metadata.refs[RESULT.branch].snapshot_id
    stage(table, 1, [(14, 2 * HOUR_US)])
    for attempt in (publish, check_publishable):
        with pytest.raises(CanNotPublish, match=f"was at snapshot {counted} when its rows were"):
            attempt(output(), RESULT, WINDOW, base, counted)
    assert content(table) == expected(OLD, "production")


def test_nothing_is_published_if_another_output_could_not_be(lake: Catalog) -> None:
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    second = lake.create_table("raw.second", schema=table.schema())
    other = replace(RESULT, output="second")
    stage(second, 0, NEW, result=other)
    second.refresh().append(rows_of([(9, HOUR_US)], "production"))
    named = {"name": "second", "table": "lake.raw.second"}
    owner = (RESULT.namespace, RESULT.backfill, RESULT.uid, RESULT.plan_id)
    first = StagedOutput(*owner, output(), base)
    job = PublishJob(first, WINDOW, (StagedOutput(*owner, output(**named), None),))
    with pytest.raises(PublishConflict, match=r"not published, because output second cannot be"):
        job.run(lambda progress: None)
    assert content(table) == expected(OLD, "production")


def test_an_output_that_is_published_is_recorded_whatever_became_of_the_others(
    lake: Catalog,
) -> None:
    """As by an operator that was killed before it had recorded the first one."""
    table, base = _production(lake, OLD)
    stage(table, 0, NEW)
    published = publish(output(), RESULT, WINDOW, base)
    owner = (RESULT.namespace, RESULT.backfill, RESULT.uid, RESULT.plan_id)
    gone = output(name="second", table="lake.raw.second")
    job = PublishJob(
        StagedOutput(*owner, output(), base), WINDOW, (StagedOutput(*owner, gone, None),)
    )
    assert job.run(lambda progress: None).snapshot_id == published.snapshot_id


def _production(
    lake: Catalog, rows: list[tuple[int, int | None]], partition: str | None = None
) -> tuple[Table, int]:
    table = make_table(lake, partition)
    table.append(rows_of(rows, "production"))
    assert table.metadata.current_snapshot_id is not None
    return table, table.metadata.current_snapshot_id


def _keep_only_current(table: Table) -> None:
    """Expires everything but the heads of branches, which leaves the main branch's snapshot without
    a parent.
    """
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    current = table.refresh().metadata.current_snapshot()
    assert current is not None and current.parent_snapshot_id is None


def _compact(table: Table) -> None:
    """Rewrites all rows into a new file by a snapshot that says it changed none, as engines do."""
    (old,) = (task.file for task in table.scan().plan_files())
    new = write_files(
        table, table.scan().to_arrow(), Result("production", "compaction", "", "1", "out")
    )
    rewrite = table.transaction().update_snapshot().overwrite()
    rewrite.delete_data_file(old)
    for file in new:
        rewrite.append_data_file(file)
    (add, move), _ = rewrite._commit()
    made = add.snapshot.model_copy(update={"summary": Summary(Operation.REPLACE)})
    commit(table, (AddSnapshotUpdate(snapshot=made), move))


def _delete(table: Table, kind: DataFileContent) -> int:
    """Deletes the first row of the table's only file by a delete file, as engines with
    merge-on-read do.
    """
    (file,) = (task.file for task in table.scan().plan_files())
    path = Path(f"{table.location()}/data/{kind.name}.parquet")
    rows = pa.table({"file_path": [file.file_path], "pos": pa.array([0], pa.int64())})
    pq.write_table(rows, path)
    made = {
        "content": kind,
        "file_path": str(path),
        "record_count": 1,
        "file_size_in_bytes": path.stat().st_size,
    }
    commit_files(table.catalog, table, 77, [], [data_file(2, **made, equality_ids=[1])])
    table.refresh()
    return 77


def _nested(name: str, offset: int) -> pa.Table:
    at = pa.array([DAY_START_US + offset]).cast(pa.timestamp("us"))
    return pa.table(
        {
            "id": pa.array([name], pa.large_string()),
            "meta": pa.StructArray.from_arrays([at], ["at"]),
        }
    )


def _raise(error: Exception) -> None:
    raise error
