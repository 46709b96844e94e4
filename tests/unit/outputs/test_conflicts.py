"""Only other rows in the window are a conflict: whoever moves the same rows to other files is in
nobody's way.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ResolveError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from backfill.api.errors import PublishConflict
from backfill.api.output import PublishMode
from backfill.api.quantities import from_us
from backfill.api.spec import Window
from backfill.outputs import window_comparison
from backfill.outputs.publication import publish
from backfill.outputs.table_commits import commit
from backfill.outputs.window_comparison import WindowComparison
from backfill.outputs.window_rows import window_rows
from iceberg_tables import commit_files, data_file, deletion_vectors, parquet_file
from staged import (
    DAY_START_US,
    DAY_US,
    HOUR_US,
    RESULT,
    WINDOW,
    content,
    expected,
    make_table,
    output,
    rows_of,
    stage,
)

OLD = [(1, -HOUR_US), (2, 0), (3, HOUR_US), (4, DAY_US), (5, None)]
"""All in one file: two of them in the window."""
STAY = [(1, -HOUR_US), (4, DAY_US), (5, None)]
NEW = [(12, 0), (13, HOUR_US)]
MODES = pytest.mark.parametrize("mode", [PublishMode.APPEND, PublishMode.REPLACE])
TOMORROW = Window(start=WINDOW.end, end=from_us(DAY_START_US + 2 * DAY_US))


def test_two_backfills_of_adjacent_days_both_replace_rows_of_one_file(lake: Catalog) -> None:
    table, base = _production(lake)
    other = replace(RESULT, backfill="tomorrow", uid="second")
    stage(table, 0, NEW)
    stage(table, 0, [(14, DAY_US + HOUR_US)], result=other, who="tomorrow")
    publish(output(), RESULT, WINDOW, base)
    publish(output(), other, TOMORROW, base)
    assert content(table) == [
        *expected([(1, -HOUR_US), (5, None)], "production"),
        *expected(NEW, "backfill"),
        *expected([(14, DAY_US + HOUR_US)], "tomorrow"),
    ]


@MODES
def test_rows_deleted_outside_the_window_from_a_file_that_reaches_into_it_are_none(
    lake: Catalog, mode: PublishMode
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    table.delete("id == 4 or id == 5")
    _publishes(table, mode, base)


@MODES
@pytest.mark.parametrize(
    "how",
    ["overwrite", "delete and append", "other partitions", "sorted", "other schema", "many files"],
)
def test_a_compaction_that_is_recorded_as_a_change_is_none(
    lake: Catalog, mode: PublishMode, how: str
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    rows = table.scan().to_arrow()
    if how == "other partitions":
        with table.update_spec() as update:
            update.add_identity("id")
    if how == "sorted":
        with table.update_sort_order() as order:
            order.desc("id", IdentityTransform())
        rows = rows.sort_by([("id", "descending")])
    if how == "other schema":
        with table.update_schema() as update:
            update.add_column("more", StringType())
            update.move_first("who")
        rows = rows.append_column("more", pa.nulls(len(rows), pa.large_string())).select(
            ["who", "id", "ts", "more"]
        )
    if how == "many files":
        table.append(rows_of([(6, 3 * DAY_US)], "production"))
        rows = table.scan().to_arrow()
    if how == "delete and append":
        table.delete(AlwaysTrue())
        table.append(rows)
    else:
        table.overwrite(rows)
    _publishes(table, mode, base)


CHANGES: dict[str, Callable[[Table], object]] = {
    "a row of the window was updated": lambda table: _rewrite(table, {2: (2, 60)}),
    "a row of the window has another value": lambda table: _rewrite(table, {2: (22, 0)}),
    "a row was moved out of the window": lambda table: _rewrite(table, {2: (2, 2 * DAY_US)}),
    "a row was moved into the window": lambda table: _rewrite(table, {4: (4, 60)}),
    "a row was given a time in the window": lambda table: _rewrite(table, {5: (5, 60)}),
    "a row lost its time": lambda table: _rewrite(table, {2: (2, None)}),
    "a row was doubled": lambda table: table.append(rows_of([OLD[1]], "production")),
    "one of the window's rows was deleted": lambda table: table.delete("id == 3"),
    "everything was deleted": lambda table: table.delete(AlwaysTrue()),
    "a file was added once more": lambda table: commit_files(
        table.catalog, table, 78, [next(_files(table))]
    ),
    "a row was exchanged for another one": lambda table: _rewrite(table, {2: (3, HOUR_US)}),
}


@MODES
@pytest.mark.parametrize("what", CHANGES)
def test_other_rows_in_the_window_are_a_conflict(
    lake: Catalog, mode: PublishMode, what: str
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    CHANGES[what](table)
    before = content(table)
    with pytest.raises(
        PublishConflict,
        match=f"was changed in the window .* snapshot {table.metadata.current_snapshot_id} ",
    ):
        publish(output(mode), RESULT, WINDOW, base)
    assert content(table) == before


def test_a_change_that_was_taken_back_is_none(lake: Catalog) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    table.append(rows_of([(6, HOUR_US)], "mistake"))
    table.delete("id == 6")
    _publishes(table, PublishMode.REPLACE, base)


def test_a_table_that_was_rolled_back_is_compared_with_what_it_was(lake: Catalog) -> None:
    table, before = _production(lake)
    table.append(rows_of([(6, 3 * DAY_US)], "production"))
    base = table.metadata.current_snapshot_id
    stage(table, 0, NEW)
    table.manage_snapshots().set_current_snapshot(snapshot_id=before).commit()
    _publishes(table, PublishMode.REPLACE, base)


def test_a_table_that_lost_its_main_branch_lost_the_rows_of_the_window(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of([(1, 0)], "production"))
    base = table.metadata.current_snapshot_id
    stage(table, 0, [(11, 0)])
    table.manage_snapshots().create_tag(base, "kept").commit()
    commit(table, (RemoveSnapshotRefUpdate(ref_name="main"),))
    with pytest.raises(PublishConflict, match="was changed in the window"):
        publish(output(), RESULT, WINDOW, base)


def test_a_row_of_the_window_that_a_rollback_took_is_a_conflict(lake: Catalog) -> None:
    table, before = _production(lake)
    table.append(rows_of([(6, HOUR_US)], "production"))
    base = table.metadata.current_snapshot_id
    stage(table, 0, NEW)
    table.manage_snapshots().set_current_snapshot(snapshot_id=before).commit()
    with pytest.raises(
        PublishConflict,
        match="was changed in the window since the backfill began: a snapshot that is no longer",
    ):
        publish(output(), RESULT, WINDOW, base)


@MODES
def test_a_table_without_a_snapshot_whose_first_one_has_expired_is_looked_at(
    lake: Catalog, mode: PublishMode
) -> None:
    table = make_table(lake)
    stage(table, 0, NEW)
    table.append(rows_of([(1, HOUR_US)], "production"))
    first = table.metadata.current_snapshot_id
    table.append(rows_of([(2, 3 * DAY_US)], "production"))
    assert first is not None
    commit(table, (RemoveSnapshotsUpdate(snapshot_ids=[first]),))
    with pytest.raises(PublishConflict):
        publish(output(mode), RESULT, WINDOW, None)


@MODES
@pytest.mark.parametrize(
    ("position", "is_conflict"), [(0, False), (3, False), (4, False), (1, True), (2, True)]
)
def test_a_row_deleted_by_position_is_a_conflict_if_it_was_in_the_window(
    lake: Catalog, mode: PublishMode, position: int, is_conflict: bool
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    table = _delete_position(table, position)
    if is_conflict:
        with pytest.raises(PublishConflict, match="was changed in the window"):
            publish(output(mode), RESULT, WINDOW, base)
    else:
        publish(output(mode), RESULT, WINDOW, base)
        deleted = OLD[position][0]
        kept = [row for row in (STAY if mode is PublishMode.REPLACE else OLD) if row[0] != deleted]
        assert content(table) == expected(kept, "production") + expected(NEW, "backfill")


def test_deletes_by_position_that_a_compaction_applied_are_none(lake: Catalog) -> None:
    table, _ = _production(lake)
    table = _delete_position(table, 1)
    base = table.metadata.current_snapshot_id
    stage(table, 0, NEW)
    table.overwrite(table.scan().to_arrow())
    _publishes(table, PublishMode.REPLACE, base)


@MODES
def test_equality_deletes_can_not_be_compared_which_is_said(
    lake: Catalog, mode: PublishMode
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    path = Path(f"{table.location()}/data/equality.parquet")
    pq.write_table(pa.table({"id": pa.array([4], pa.int64())}), path)
    made = {
        "file_path": str(path),
        "record_count": 1,
        "file_size_in_bytes": path.stat().st_size,
        "equality_ids": [1],
    }
    commit_files(
        lake, table, 77, [], [data_file(2, content=DataFileContent.EQUALITY_DELETES, **made)]
    )
    with pytest.raises(
        PublishConflict,
        match=r"snapshot 77 .* cannot be compared: it has equality deletes there; compare",
    ):
        publish(output(mode), RESULT, WINDOW, base)


@MODES
@pytest.mark.parametrize(
    "damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"PAR1 not really PAR1")]
)
def test_files_that_are_gone_or_damaged_can_not_be_compared_which_is_said(
    lake: Catalog, mode: PublishMode, damage: Callable[[Path], object]
) -> None:
    table, base = _production(lake)
    (old,) = (task.file.file_path for task in table.scan().plan_files())
    stage(table, 0, NEW)
    table.delete("id == 4")
    damage(Path(old))
    with pytest.raises(PublishConflict, match="its earlier and current rows cannot be compared: "):
        publish(output(mode), RESULT, WINDOW, base)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ResolveError("cannot promote string to int"), PublishConflict),
        (TypeError("values of type duration cannot be compared"), PublishConflict),
        (ConnectionError("the store is away"), ConnectionError),
    ],
)
def test_only_what_another_try_would_not_change_is_a_conflict(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise error

    table, base = _production(lake)
    stage(table, 0, NEW)
    table.delete("id == 4")
    monkeypatch.setattr(window_comparison, "read_rows", fail)
    with pytest.raises(raised, match=str(error)):
        publish(output(), RESULT, WINDOW, base)


def test_a_file_that_the_table_lists_twice_has_its_rows_twice(lake: Catalog) -> None:
    table, _ = _production(lake)
    base = commit_files(lake, table, 78, [next(_files(table))]).metadata.current_snapshot_id
    stage(table.refresh(), 0, NEW)
    table.overwrite(table.scan().to_arrow())
    _publishes(table, PublishMode.REPLACE, base)


def test_rows_that_were_read_before_the_schema_changed_are_read_again(lake: Catalog) -> None:
    table, base = _production(lake)
    rows = window_rows(table.schema(), output(), WINDOW)
    assert rows is not None
    comparison = WindowComparison(rows)
    for column in ("more", "still_more"):
        table.overwrite(table.scan().to_arrow())
        assert comparison.same(table, base, table.metadata.current_snapshot_id)
        with table.update_schema() as update:
            update.add_column(column, StringType())


def test_files_outside_the_window_that_a_later_cleanup_removed_are_not_missed(
    lake: Catalog,
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    table.append(rows_of([(6, 3 * DAY_US)], "production"))
    (added,) = (task.file.file_path for task in table.scan("id == 6").plan_files())
    table.delete("id == 6")
    Path(added).unlink()
    _publishes(table, PublishMode.REPLACE, base)


def test_a_backfill_that_changed_the_window_is_named(lake: Catalog) -> None:
    table, base = _production(lake)
    other = replace(RESULT, backfill="another", uid="second")
    stage(table, 0, NEW)
    stage(table, 0, NEW, result=other)
    publish(output(PublishMode.APPEND), other, WINDOW, base)
    with pytest.raises(PublishConflict, match=r"\(append at .*, by Backfill streaming/another\)"):
        publish(output(), RESULT, WINDOW, base)


NESTED_TYPES = StructType(
    NestedField(11, "x", LongType()), NestedField(12, "y", DecimalType(20, 3))
)
ODD = Schema(
    NestedField(1, "ts", TimestamptzType()),
    NestedField(2, "real", DoubleType()),
    NestedField(3, "money", DecimalType(38, 9)),
    NestedField(4, "uuid", UUIDType()),
    NestedField(5, "at", TimestampType()),
    NestedField(6, "many", ListType(13, NESTED_TYPES, element_required=False)),
    NestedField(7, "by_name", MapType(14, StringType(), 15, DoubleType(), value_required=False)),
    NestedField(
        8,
        "nested",
        StructType(NestedField(16, "x", LongType()), NestedField(17, "on", TimestamptzType())),
    ),
)
ODD_ROW: dict[str, Any] = {
    "ts": datetime(2021, 7, 11, 5, tzinfo=UTC),
    "real": float("nan"),
    "money": Decimal("-1.5"),
    "uuid": bytes(15) + b"\x07",
    "at": datetime(2021, 7, 11),
    "many": [{"x": 1, "y": Decimal("2.5")}, None],
    "by_name": [("a", 1.0), ("b", None)],
    "nested": {"x": None, "on": datetime(2021, 7, 11, 5, tzinfo=UTC)},
}
OTHERS: dict[str, Any] = {
    "real": 0.0,
    "money": Decimal("-1.500000001"),
    "uuid": bytes(16),
    "at": None,
    "many": [{"x": 1, "y": Decimal("2.5")}],
    "by_name": [("a", 1.0)],
    "nested": None,
}


@pytest.mark.parametrize("column", [None, *OTHERS])
def test_rows_of_all_types_are_compared_by_their_values(lake: Catalog, column: str | None) -> None:
    table = make_table(lake, columns=ODD)
    outside = {**ODD_ROW, "ts": datetime(2021, 7, 13, tzinfo=UTC)}
    arrow = schema_to_pyarrow(ODD, include_field_ids=False)
    table.append(
        pa.Table.from_pylist(
            [ODD_ROW, dict.fromkeys(ODD_ROW), outside, {**ODD_ROW, **OTHERS}], schema=arrow
        )
    )
    base = table.metadata.current_snapshot_id
    changed = ODD_ROW if column is None else {**ODD_ROW, column: OTHERS[column]}
    table.overwrite(
        pa.Table.from_pylist([{**ODD_ROW, **OTHERS}, changed, dict.fromkeys(ODD_ROW)], schema=arrow)
    )
    rows = window_rows(table.schema(), output(), WINDOW)
    assert rows is not None
    assert WindowComparison(rows).same(table, base, table.metadata.current_snapshot_id) is (
        column is None
    )


@pytest.mark.usefixtures("format_v3")
@pytest.mark.parametrize(("position", "same"), [(0, True), (1, False)])
def test_deletion_vectors_are_applied(lake: Catalog, position: int, same: bool) -> None:
    table = make_table(lake, **{"format-version": "3"})
    file = parquet_file(table, "old.parquet", rows_of(OLD, "production"))
    table = commit_files(lake, table, 1, [file])
    path = Path(f"{table.location()}/data/vector.puffin")
    deletion_vectors(path, {file.file_path: [position]})
    made = {
        "file_format": FileFormat.PUFFIN,
        "referenced_data_file": file.file_path,
        "content_offset": 4,
    }
    vector = data_file(
        3, content=DataFileContent.POSITION_DELETES, file_path=str(path), record_count=1,
        file_size_in_bytes=path.stat().st_size, content_size_in_bytes=40, **made,
    )  # fmt: skip
    table = commit_files(lake, table, 2, [], [vector])
    rows = window_rows(table.schema(), output(), WINDOW)
    assert rows is not None
    assert WindowComparison(rows).same(table, 1, 2) is same


def test_a_snapshot_that_says_it_only_rewrites_is_believed(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, base = _production(lake)
    stage(table, 0, NEW)
    (old,) = (task.file for task in table.scan().plan_files())
    rewrite = table.transaction().update_snapshot().overwrite()
    rewrite.delete_data_file(old)
    rewrite.append_data_file(parquet_file(table, "compacted.parquet", table.scan().to_arrow()))
    (add, move), _ = rewrite._commit()
    said = add.snapshot.model_copy(update={"summary": Summary(Operation.REPLACE)})
    commit(table, (AddSnapshotUpdate(snapshot=said), move))
    monkeypatch.setattr(WindowComparison, "same", lambda *_: pytest.fail("rows were read"))
    _publishes(table, PublishMode.REPLACE, base)


def _production(lake: Catalog) -> tuple[Table, int]:
    table = make_table(lake)
    table.append(rows_of(OLD, "production"))
    assert table.metadata.current_snapshot_id is not None
    return table, table.metadata.current_snapshot_id


def _publishes(table: Table, mode: PublishMode, base: int | None) -> None:
    """Publishes the result; the rows that were there before are still there, but those that Replace
    takes.
    """
    table.refresh()
    before = content(table)
    publish(output(mode), RESULT, WINDOW, base)
    kept = before if mode is PublishMode.APPEND else [row for row in before if row[0] not in (2, 3)]
    assert content(table) == kept + expected(NEW, "backfill")


def _files(table: Table) -> Iterator[DataFile]:
    return (task.file for task in table.scan().plan_files())


def _rewrite(table: Table, changed: dict[int, tuple[int, int | None]]) -> None:
    """An UPDATE as engines do it with copy-on-write."""
    table.overwrite(rows_of([changed.get(row[0], row) for row in OLD], "production"))


def _delete_position(table: Table, position: int) -> Table:
    """A DELETE of one row as engines do it with merge-on-read."""
    (file,) = (task.file for task in table.scan().plan_files())
    path = Path(f"{table.location()}/data/position.parquet")
    pq.write_table(
        pa.table({"file_path": [file.file_path], "pos": pa.array([position], pa.int64())}), path
    )
    made = {"file_path": str(path), "record_count": 1, "file_size_in_bytes": path.stat().st_size}
    return commit_files(
        table.catalog,
        table.refresh(),
        77,
        [],
        [data_file(2, content=DataFileContent.POSITION_DELETES, **made)],
    )
