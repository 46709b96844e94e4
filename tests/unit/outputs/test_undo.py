"""What was published is taken out of its table again, exactly, or what is in the way is named."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.types import StringType

from backfill.api.errors import CanNotUndo
from backfill.api.output import PublishMode
from backfill.api.spec import Window
from backfill.outputs.publication import publish
from backfill.outputs.result_names import Result
from backfill.outputs.staging import summary_of
from backfill.outputs.table_commits import commit
from backfill.outputs.undo_publication import Undo
from iceberg_tables import commit_files, commit_manifests, data_file, parquet_file
from staged import (
    DAY_US,
    HOUR_US,
    RESULT,
    WINDOW,
    around_commit,
    content,
    make_table,
    output,
    rows_of,
    stage,
)

BOTH = pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
OLD = [(1, -HOUR_US), (2, 0), (3, DAY_US - 1), (4, DAY_US), (5, None)]
STAY = [(1, -HOUR_US), (4, DAY_US), (5, None)]
NEW = [(12, 0), (13, HOUR_US)]
TOMORROW = [(30, DAY_US + HOUR_US)]
LATER = Result("streaming", "later", "second", "fedcba9876543210", "summary")


def production(
    lake: Catalog, mode: PublishMode, partition: str | None = None
) -> tuple[Table, int, list[tuple[object, object, object]]]:
    """A table with a published result, the snapshot, and what it held before."""
    table = make_table(lake, partition)
    table.append(rows_of(OLD if mode is PublishMode.REPLACE else STAY, "production"))
    base, before = table.metadata.current_snapshot_id, content(table)
    stage(table, 0, NEW)
    return table, publish(output(mode), RESULT, WINDOW, base).snapshot_id, before


def undo(snapshot: int, mode: PublishMode = PublishMode.REPLACE) -> int:
    return Undo(output(mode), RESULT, WINDOW, snapshot).run()


def refusal(snapshot: int, mode: PublishMode = PublishMode.REPLACE) -> str:
    table = load_catalog("lake").load_table("raw.out")
    before = table.metadata
    for attempt in (lambda: Undo(output(mode), RESULT, WINDOW, snapshot).check(), undo):
        with pytest.raises(CanNotUndo) as refused:
            attempt() if attempt is not undo else undo(snapshot, mode)
    assert table.refresh().metadata == before, "nothing was committed"
    return str(refused.value)


@BOTH
@pytest.mark.parametrize("partition", [None, "hour", "day", "month", "bucket[4]"])
def test_the_table_holds_what_it_held_before(
    lake: Catalog, mode: PublishMode, partition: str | None
) -> None:
    table, published, before = production(lake, mode, partition)
    with_result = len(content_at(table, published))
    undone = undo(published, mode)
    assert content(table) == before
    again = Undo(output(mode), RESULT, WINDOW, published)
    assert again.rows_gained == len(before) - with_result
    assert [entry.snapshot_id for entry in table.history()][-2:] == [published, undone]
    summary = table.metadata.current_snapshot().summary
    removes_only = mode is PublishMode.APPEND
    assert summary.operation is (Operation.DELETE if removes_only else Operation.OVERWRITE)
    first = table.metadata.snapshots[0].summary
    for total in ("total-records", "total-data-files", "total-files-size"):
        assert summary[total] == first[total]


@BOTH
def test_it_is_undone_once_however_often_it_is_asked_for(lake: Catalog, mode: PublishMode) -> None:
    table, published, before = production(lake, mode)
    assert undo(published, mode) == undo(published, mode)
    assert content(table) == before


@BOTH
def test_what_others_write_beside_the_window_stays(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, mode: PublishMode
) -> None:
    table, published, before = production(lake, mode, "day")
    table.refresh().append(rows_of(TOMORROW, "production"))
    other = load_catalog("lake").load_table("raw.out")
    meanwhile = [(31, 5 * DAY_US)]
    around_commit(monkeypatch, table, before=lambda: other.append(rows_of(meanwhile, "production")))
    undo(published, mode)
    assert [row[0] for row in content(table)] == [*(row[0] for row in before), 30, 31]


AROUND = [(40, -3 * DAY_US), (41, DAY_US), (42, None)]


@BOTH
def test_a_late_row_beside_those_of_now_does_not_count_as_rows_of_all_times_between(
    lake: Catalog, mode: PublishMode
) -> None:
    table, published, before = production(lake, mode)
    table.refresh().append(rows_of(AROUND, "production"))
    undo(published, mode)
    rows = {row[0]: row for row in content(table)}
    assert [rows[row[0]] for row in before] == before
    assert rows.keys() - {row[0] for row in before} == {40, 41, 42}


def test_a_row_of_the_window_among_others_is_in_the_way_and_so_is_a_file_that_is_gone(
    lake: Catalog,
) -> None:
    table, published, _ = production(lake, PublishMode.REPLACE)
    table.refresh().append(rows_of([*AROUND, (43, HOUR_US)], "production"))
    assert "was changed in the window since" in refusal(published)
    table.refresh().delete(EqualTo("id", 43))
    (gone,) = (
        path
        for path in table.inspect.all_data_files()["file_path"].to_pylist()
        if 43 in pq.read_table(path.removeprefix("file://"))["id"].to_pylist()
    )
    table.io.delete(gone)
    assert "was changed in the window since" in refusal(published)


@pytest.mark.parametrize("partition", [None, "day"])
def test_rows_that_were_replaced_by_their_keys_are_restored(
    lake: Catalog, partition: str | None
) -> None:
    table = make_table(lake, partition)
    table.append(rows_of(OLD, "production"))
    base, before = table.metadata.current_snapshot_id, content(table)
    stage(table, 0, [(2, 0), (13, HOUR_US)])
    upsert = output(PublishMode.UPSERT, keys=("id",))
    published = publish(upsert, RESULT, WINDOW, base).snapshot_id
    assert [row[0] for row in content(table)] == [1, 2, 3, 4, 5, 13]
    assert content(table) != before
    Undo(upsert, RESULT, WINDOW, published).run()
    assert content(table) == before


@BOTH
@pytest.mark.parametrize("change", ["partitioning", "columns", "properties"])
def test_a_table_that_was_changed_since_is_restored_as_well(
    lake: Catalog, mode: PublishMode, change: str
) -> None:
    table, published, before = production(lake, mode, "day")
    table.refresh()
    if change == "partitioning":
        with table.update_spec() as update:
            update.remove_field("part")
            update.add_identity("who")
    elif change == "columns":
        with table.update_schema() as update:
            update.add_column("more", StringType())
            update.rename_column("who", "author")
            update.move_first("ts")
        with table.update_schema() as update:
            update.rename_column("author", "who")
    else:
        with table.transaction() as transaction:
            transaction.set_properties({"write.data.path": f"{table.location()}/elsewhere"})
    undo(published, mode)
    assert content(table) == before


def test_files_whose_partitioning_is_unknown_are_not_touched(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of(OLD, "production"))
    with table.update_spec() as update:
        update.add_identity("who")
    base = table.metadata.current_snapshot_id
    stage(table, 0, NEW)
    published = publish(output(), RESULT, WINDOW, base).snapshot_id
    with table.refresh().update_spec() as update:
        update.remove_field("who")
    with table.update_schema() as update:
        update.delete_column("who")
    assert "partitioned by who, whose column was dropped" in refusal(published)


def test_a_table_of_format_v1_is_restored(lake: Catalog) -> None:
    table = make_table(lake, "day", **{"format-version": "1"})
    table.append(rows_of(OLD, "production"))
    base, before = table.metadata.current_snapshot_id, content(table)
    assert table.format_version == 1
    stage(table, 0, NEW)
    undo(publish(output(), RESULT, WINDOW, base).snapshot_id)
    assert content(table) == before


def test_rows_that_others_append_to_the_window_are_no_part_of_an_append(lake: Catalog) -> None:
    table, published, before = production(lake, PublishMode.APPEND)
    table.refresh().append(rows_of([(20, HOUR_US)], "production"))
    undo(published, PublishMode.APPEND)
    assert [row[0] for row in content(table)] == [*(row[0] for row in before), 20]


def test_rows_written_to_the_window_since_are_in_the_way_of_a_replacement(lake: Catalog) -> None:
    table, published, _ = production(lake, PublishMode.REPLACE)
    table.refresh().append(rows_of([(20, HOUR_US)], "production"))
    late = table.metadata.current_snapshot_id
    told = refusal(published)
    assert "was changed in the window since the result was published" in told
    assert f"snapshot {late} (append at " in told


@BOTH
def test_deleted_rows_of_the_result_are_in_the_way(lake: Catalog, mode: PublishMode) -> None:
    table, published, _ = production(lake, mode)
    table.refresh().delete(EqualTo("id", 12))
    assert f"snapshot {table.metadata.current_snapshot_id} (" in refusal(published, mode)


@BOTH
def test_a_compaction_of_what_was_published_is_in_the_way(lake: Catalog, mode: PublishMode) -> None:
    table, published, _ = production(lake, mode)
    compact(table)
    told = refusal(published, mode)
    published_files = "1 of the 1 file" if mode is PublishMode.APPEND else "2 of the 2 files"
    was = "was" if mode is PublishMode.APPEND else "were"
    assert f"{published_files} published to lake.raw.out {was} rewritten or removed since" in told
    assert f"snapshot {table.metadata.current_snapshot_id} (replace at " in told


def compact(table: Table) -> None:
    """Rewrites all rows into one file, in a snapshot that says so."""
    table.refresh()
    rewrite = table.transaction().update_snapshot().overwrite()
    for task in table.scan().plan_files():
        rewrite.delete_data_file(task.file)
    rewrite.append_data_file(parquet_file(table, "compacted.parquet", table.scan().to_arrow()))
    (add, move), _ = rewrite._commit()
    said = add.snapshot.model_copy(update={"summary": Summary(Operation.REPLACE)})
    commit(table, (AddSnapshotUpdate(snapshot=said), move))
    table.refresh()


def test_rows_that_were_deleted_before_stay_deleted(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of(OLD, "production"))
    table = delete_position(table, 1)
    base, before = table.metadata.current_snapshot_id, content(table)
    assert [row[0] for row in before] == [1, 3, 4, 5]
    stage(table, 0, NEW)
    published = publish(output(), RESULT, WINDOW, base).snapshot_id
    undo(published)
    assert content(table) == before
    assert Undo(output(), RESULT, WINDOW, published).rows_gained is None, "one is deleted"


def test_deletes_of_the_result_by_position_are_in_the_way(lake: Catalog) -> None:
    table, published, _ = production(lake, PublishMode.APPEND, "day")
    table = delete_position(table.refresh(), 0, "2021-07-11")
    assert "snapshot 77 (" in refusal(published, PublishMode.APPEND)


def test_rows_are_not_restored_without_the_deletes_that_applied_to_them(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of(OLD, "production"))
    table = delete_position(table, 1)
    base = table.metadata.current_snapshot_id
    stage(table, 0, NEW)
    published = publish(output(), RESULT, WINDOW, base).snapshot_id
    table.refresh()
    kept = [
        manifest
        for manifest in table.current_snapshot().manifests(table.io)
        if manifest.content is ManifestContent.DATA and not manifest.deleted_files_count
    ]
    commit_manifests(lake, table, kept, 78)
    _only_rewrote(table, 78)
    assert "delete files of lake.raw.out that apply to what would be restored" in refusal(published)


def _only_rewrote(table: Table, snapshot: int) -> None:
    """Changes what a snapshot says of itself."""
    table.refresh()
    made = table.metadata.snapshot_by_id(snapshot)
    said = made.model_copy(
        update={
            "snapshot_id": snapshot + 1,
            "parent_snapshot_id": made.parent_snapshot_id,
            "sequence_number": made.sequence_number + 1,
            "summary": Summary(Operation.REPLACE),
        }
    )
    main = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot + 1)
    commit(table, (AddSnapshotUpdate(snapshot=said), main))
    table.refresh()


def delete_position(table: Table, position: int, day: str | None = None) -> Table:
    """A DELETE of one row as engines do it with merge-on-read."""
    files = (task.file for task in table.scan().plan_files())
    file = next(each for each in files if day is None or day in each.file_path)
    path = Path(f"{table.location()}/data/position.parquet")
    pq.write_table(
        pa.table({"file_path": [file.file_path], "pos": pa.array([position], pa.int64())}), path
    )
    deletes = data_file(
        2,
        content=DataFileContent.POSITION_DELETES,
        file_path=str(path),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
        partition=file.partition,
    )
    deletes.spec_id = file.spec_id
    return commit_files(table.catalog, table.refresh(), 77, [], [deletes])


def test_a_later_backfill_of_the_window_is_undone_first(lake: Catalog) -> None:
    table, published, before = production(lake, PublishMode.REPLACE)
    between = content(table)
    stage(table, 0, [(22, HOUR_US)], result=LATER)
    second = publish(output(), LATER, WINDOW, published).snapshot_id
    assert "by Backfill streaming/later)" in refusal(published)
    Undo(output(), LATER, WINDOW, second).run()
    assert content(table) == between
    undo(published)
    assert content(table) == before


@BOTH
@pytest.mark.parametrize("error", [ConnectionError("reset"), CommitFailedException("changed")])
def test_a_commit_whose_answer_was_lost_is_not_made_again(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, mode: PublishMode, error: Exception
) -> None:
    table, published, before = production(lake, mode)

    def lose() -> None:
        raise error

    around_commit(monkeypatch, table, after=lose)
    undo(published, mode)
    assert content(table) == before
    undone = [each for each in table.metadata.snapshots if "backfill.undoes" in summary_of(each)]
    assert len(undone) == 1


class Killed(BaseException):
    """The process ends here."""


@BOTH
def test_wherever_it_is_killed_the_next_try_gives_the_right_table(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, mode: PublishMode
) -> None:
    """Killed before and after each file that it writes, and around its commit."""
    table, published, before = production(lake, mode, "day")
    between, kind = content(table), type(table.io)
    new_output, kills = kind.new_output, 0
    for allowed in range(20):
        left = iter([None] * allowed)

        def written(self: object, location: str, left: object = left) -> object:
            if next(left, Killed) is Killed:  # type: ignore[call-overload]
                raise Killed
            return new_output(self, location)

        monkeypatch.setattr(kind, "new_output", written)
        try:
            undo(published, mode)
            break
        except Killed:
            kills += 1
        finally:
            monkeypatch.setattr(kind, "new_output", new_output)
        assert content(table) in (between, before)
    assert kills >= 2
    assert content(table) == before
    around_commit(monkeypatch, table, after=lambda: None)
    assert undo(published, mode) == table.metadata.current_snapshot_id


@pytest.mark.parametrize("between", [False, True])
def test_files_that_are_restored_are_listed_as_removed_nowhere_but_where_they_were(
    lake: Catalog, between: bool
) -> None:
    """Iceberg's Java library deletes what an expiring snapshot removed, without a look at what is
    live, unless a later snapshot says that it holds the changes of that one.
    """
    table, published, before = production(lake, PublishMode.REPLACE, "day")
    if between:
        stage(table, 0, [(4, DAY_US)], result=LATER, who="later")
        publish(output(), LATER, _days_later(1), published)
    undone = undo(published)
    assert _lists_removed_by(table, published) == {published}
    summary = table.metadata.snapshot_by_id(undone).summary
    assert summary["source-snapshot-id"] == str(published)
    assert [row[0] for row in content(table)] == [row[0] for row in before]


def test_it_is_refused_where_another_snapshot_lists_the_files_as_removed(lake: Catalog) -> None:
    table, published, _ = production(lake, PublishMode.REPLACE, "day")
    table.refresh().append(rows_of([(40, 4 * DAY_US)], "production"))
    kept = table.metadata.snapshots[-2].manifests(table.io)
    commit_manifests(lake, table, kept, 78)
    assert "are listed as removed by snapshot 78 (" in refusal(published)


def _lists_removed_by(table: Table, snapshot: int) -> set[int]:
    """The snapshots that list files which one has removed."""
    return {
        each.snapshot_id
        for each in table.refresh().metadata.snapshots
        for manifest in each.manifests(table.io)
        if manifest.added_snapshot_id == snapshot and manifest.deleted_files_count
    }


def _days_later(number: int) -> Window:
    days = timedelta(days=number)
    return Window(start=WINDOW.start + days, end=WINDOW.end + days)


def test_an_expired_snapshot_from_before_is_said(lake: Catalog) -> None:
    table, published, _ = production(lake, PublishMode.REPLACE)
    first = table.refresh().metadata.snapshots[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    assert "from before the publication has expired" in refusal(published)


def test_an_append_needs_no_snapshot_from_before(lake: Catalog) -> None:
    table, published, before = production(lake, PublishMode.APPEND)
    first = table.refresh().metadata.snapshots[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    undo(published, PublishMode.APPEND)
    assert content(table) == before


@BOTH
def test_only_its_own_publication_is_undone(lake: Catalog, mode: PublishMode) -> None:
    """Whoever can forge a job's report could otherwise have another Backfill's rows removed."""
    table, published, _ = production(lake, mode)
    table.refresh().append(rows_of(TOMORROW, "production"))
    written = table.metadata.current_snapshot_id
    assert written is not None
    assert "did not publish the result of this Backfill" in refusal(written, mode)
    for other in (LATER, replace(RESULT, output="other")):
        with pytest.raises(CanNotUndo, match=f"snapshot {published} of lake.raw.out did not"):
            Undo(output(mode), other, WINDOW, published).check()


def test_an_expired_publication_is_said(lake: Catalog) -> None:
    table, published, _ = production(lake, PublishMode.REPLACE)
    table.refresh().append(rows_of(TOMORROW, "production"))
    table.maintenance.expire_snapshots().by_id(published).commit()
    assert f"snapshot {published} of lake.raw.out, which published the result, has" in refusal(
        published
    )


def test_an_expired_snapshot_since_then_is_said_whatever_is_tagged(lake: Catalog) -> None:
    table, published, _ = production(lake, PublishMode.REPLACE)
    first = table.refresh().metadata.snapshots[0].snapshot_id
    for name, snapshot in (("before", first), ("published", published)):
        table.manage_snapshots().create_tag(snapshot, name).commit()
    table.refresh().append(rows_of(TOMORROW, "production"))
    between = table.metadata.current_snapshot_id
    table.append(rows_of([(31, 2 * DAY_US)], "production"))
    table.maintenance.expire_snapshots().by_id(between).commit()
    assert "snapshots since then have expired" in refusal(published)


def test_a_table_that_was_rolled_back_is_said(lake: Catalog) -> None:
    table, published, _ = production(lake, PublishMode.REPLACE)
    first = table.refresh().metadata.snapshots[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert "is no longer in the history of lake.raw.out" in refusal(published)


def test_missing_files_are_not_restored(lake: Catalog) -> None:
    table, published, _ = production(lake, PublishMode.REPLACE)
    first = table.metadata.snapshots[0]
    (entry,) = (
        entry
        for manifest in first.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    )
    table.io.delete(entry.data_file.file_path)
    assert "1 file that would be restored to lake.raw.out no longer exists" in refusal(published)


@BOTH
@pytest.mark.parametrize("partition", [None, "day"])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_others_do_since_it_is_exact_or_refused(
    lake: Catalog, mode: PublishMode, partition: str | None, seed: int
) -> None:
    """They append and delete rows anywhere, and compact."""
    chance = Random(seed)
    table, published, before = production(lake, mode, partition)
    new = {row[0] for row in NEW}
    for number in range(chance.randint(1, 3)):
        table.refresh()
        # what is written here in one file belongs to one partition
        match chance.choice(["append", "append", "delete", "append" if partition else "compact"]):
            case "append":
                day = chance.choice([-2, -1, 0, 1, 2])
                rows = [(100 + number, day * DAY_US + HOUR_US)]
                table.append(rows_of(rows, "production"))
            case "delete":
                table.delete(EqualTo("id", chance.choice([1, 4, 5, 12, 100])))
            case "compact":
                compact(table)
    since = content(table)
    try:
        undo(published, mode)
    except CanNotUndo:
        assert content(table) == since
        return
    replaced = {row for row in before if row not in content_at(table, published)}
    rest = {row for row in since if row[0] not in new}
    assert content(table) == sorted(rest | replaced, key=lambda row: int(str(row[0])))


def content_at(table: Table, snapshot: int) -> list[tuple[object, object, object]]:
    """The rows of an earlier snapshot."""
    name = f"at-{snapshot}"
    table.refresh().manage_snapshots().create_tag(snapshot, name).commit()
    return content(table, name)
