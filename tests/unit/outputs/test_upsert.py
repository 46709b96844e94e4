"""Upsert replaces the rows of the result's keys, in one commit, and leaves all others."""

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from backfill.api.errors import BadInput, CanNotPublish, PublishConflict
from backfill.api.output import PublishMode
from backfill.outputs.output_tables import check_outputs
from backfill.outputs.publication import check_publishable, publish
from backfill.outputs.undo_publication import Undo
from backfill.outputs.upserted_rows import _KeySet
from staged import (
    DAY_US,
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
)

BY_ID = output(PublishMode.UPSERT, keys=["id"])
BY_ID_AND_TIME = output(PublishMode.UPSERT, keys=["ts", "id"])


def production(lake: Catalog, rows: list[Row], partition: str | None = None) -> tuple[Table, int]:
    table = make_table(lake, partition)
    table.append(rows_of(rows, "production"))
    assert table.metadata.current_snapshot_id is not None
    return table, table.metadata.current_snapshot_id


@pytest.mark.parametrize("partition", [None, "hour", "day", "bucket[4]"])
def test_rows_with_the_keys_of_the_result_are_replaced_and_all_others_stay(
    lake: Catalog, partition: str | None
) -> None:
    table, base = production(lake, [(1, 0), (2, HOUR_US), (3, HOUR_US), (4, DAY_US)], partition)
    stage(table, 0, [(2, HOUR_US), (5, 0)])
    published = publish(BY_ID_AND_TIME, RESULT, WINDOW, base)
    assert content(table) == sorted(
        expected([(1, 0), (3, HOUR_US), (4, DAY_US)], "production")
        + expected([(2, HOUR_US), (5, 0)], "backfill"),
        key=lambda row: row[0],
    )
    assert published.rows == 2
    assert [entry.snapshot_id for entry in table.history()] == [base, published.snapshot_id]


def test_it_is_undone_as_it_was_done(lake: Catalog) -> None:
    before = [(1, 0), (2, HOUR_US), (3, HOUR_US), (4, DAY_US)]
    table, base = production(lake, before)
    stage(table, 0, [(2, HOUR_US), (5, 0)])
    published = publish(BY_ID_AND_TIME, RESULT, WINDOW, base)
    Undo(BY_ID_AND_TIME, RESULT, WINDOW, published.snapshot_id).run()
    assert content(table) == expected(before, "production")


def test_files_without_such_keys_are_not_touched(lake: Catalog) -> None:
    table, _ = production(lake, [(1, 0), (2, HOUR_US)])
    table.append(rows_of([(3, 0)], "production"))
    (newest,) = [
        task.file.file_path for task in table.scan().plan_files() if task.file.record_count == 1
    ]
    stage(table, 0, [(2, HOUR_US)])
    publish(BY_ID_AND_TIME, RESULT, WINDOW, table.metadata.current_snapshot_id)
    assert newest in {task.file.file_path for task in table.refresh().scan().plan_files()}
    assert len(content(table)) == 3


def test_a_key_that_does_not_say_the_time_replaces_older_rows_too(lake: Catalog) -> None:
    table, base = production(lake, [(1, -HOUR_US), (2, HOUR_US), (3, None)])
    stage(table, 0, [(1, 0), (2, 2 * HOUR_US), (3, 0)])
    publish(BY_ID, RESULT, WINDOW, base)
    assert content(table) == expected([(1, 0), (2, 2 * HOUR_US), (3, 0)], "backfill")


def test_a_newer_row_of_the_table_is_not_replaced_nor_doubled(lake: Catalog) -> None:
    table, base = production(lake, [(1, DAY_US), (2, 0)])
    stage(table, 0, [(1, 0), (2, 0)])
    with pytest.raises(CanNotPublish, match=r"lake.raw.out has a newer row .* for id 1: its ts is"):
        publish(BY_ID, RESULT, WINDOW, base)
    assert content(table) == expected([(1, DAY_US), (2, 0)], "production")


def test_a_key_that_the_result_has_twice_is_not_published(lake: Catalog) -> None:
    table, base = production(lake, [(1, 0)])
    stage(table, 0, [(1, 0), (1, HOUR_US), (1, HOUR_US), (2, 0)])
    with pytest.raises(
        CanNotPublish, match=r"^2 rows of the result .* have the same id as another"
    ):
        publish(BY_ID, RESULT, WINDOW, base)
    with pytest.raises(CanNotPublish, match=r"^1 row of the result .* has the same ts, id"):
        publish(BY_ID_AND_TIME, RESULT, WINDOW, base)
    with pytest.raises(
        CanNotPublish, match=r"^2 rows of the result .* have the same id as another"
    ):
        check_publishable(BY_ID, RESULT, WINDOW, base, None)


def test_a_column_of_the_keys_that_was_renamed_since_is_named(lake: Catalog) -> None:
    table, base = production(lake, [(1, 0)])
    stage(table, 0, [(1, 0)])
    with table.refresh().update_schema() as update:
        update.rename_column("id", "number")
    for attempt in (publish, check_publishable):
        with pytest.raises(
            BadInput, match=r"^spec.outputs.keys: table lake.raw.out has no top-level column"
        ):
            attempt(BY_ID, RESULT, WINDOW, base, None)
    assert len(table.refresh().scan().to_arrow()) == 1


def test_rows_of_the_table_that_have_the_same_key_are_all_replaced(lake: Catalog) -> None:
    table, base = production(lake, [(1, 0), (1, HOUR_US), (1, None), (2, 0)])
    stage(table, 0, [(1, 0)])
    publish(BY_ID, RESULT, WINDOW, base)
    assert content(table) == expected([(1, 0)], "backfill") + expected([(2, 0)], "production")


def test_keys_of_null_are_the_same_key(lake: Catalog) -> None:
    table, base = production(lake, [(1, 0)])
    stage(table, 0, [(2, 0)], who=None)  # type: ignore[arg-type]
    table.append(rows_of([(3, 0)], None))  # type: ignore[arg-type]
    publish(
        output(PublishMode.UPSERT, keys=["who", "ts"]),
        RESULT,
        WINDOW,
        table.metadata.current_snapshot_id,
    )
    assert [row[0] for row in content(table)] == [1, 2]
    assert base


def test_a_change_of_the_window_since_the_run_is_a_conflict(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, base = production(lake, [(1, 0)])
    stage(table, 0, [(1, 0)])
    other = load_catalog("lake").load_table("raw.out")
    around_commit(
        monkeypatch, table, before=lambda: other.append(rows_of([(2, HOUR_US)], "production"))
    )
    with pytest.raises(PublishConflict):
        publish(BY_ID_AND_TIME, RESULT, WINDOW, base)
    assert content(table) == expected([(1, 0), (2, HOUR_US)], "production")


def test_live_rows_of_other_times_may_come_meanwhile(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, base = production(lake, [(1, 0)])
    stage(table, 0, [(1, 0)])
    other = load_catalog("lake").load_table("raw.out")
    around_commit(
        monkeypatch, table, before=lambda: other.append(rows_of([(1, 2 * DAY_US)], "production"))
    )
    publish(BY_ID_AND_TIME, RESULT, WINDOW, base)
    assert sorted(row[2] for row in content(table)) == ["backfill", "production"]


def test_publishing_again_and_publishing_nothing_change_nothing(lake: Catalog) -> None:
    table, base = production(lake, [(1, 0)])
    stage(table, 0, [])
    first = publish(BY_ID, RESULT, WINDOW, base)
    again = publish(BY_ID, RESULT, WINDOW, base)
    assert (again.snapshot_id, again.already) == (first.snapshot_id, True)
    assert content(table) == expected([(1, 0)], "production")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["idd"], "table lake.raw.out has no top-level column idd"),
        (["price"], "column price of lake.raw.out is a double, which cannot identify rows"),
        (["many"], "column many of lake.raw.out is a list<long>, which cannot identify"),
        (["span"], "column span of lake.raw.out is a struct<"),
        (["id", "ts", "slot"], None),
    ],
)
def test_keys_are_checked_before_anything_runs(
    lake: Catalog, keys: list[str], words: str | None
) -> None:
    columns = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "ts", TimestamptzType()),
        NestedField(3, "who", StringType()),
        NestedField(4, "price", DoubleType()),
        NestedField(5, "many", ListType(6, LongType())),
        NestedField(7, "span", StructType(NestedField(8, "from", DoubleType()))),
        NestedField(9, "slot", StructType(NestedField(10, "from", TimestamptzType()))),
    )
    make_table(lake, columns=columns)
    problems = check_outputs([output(PublishMode.UPSERT, keys=keys)], [RESULT], WINDOW)
    if words is None:
        assert not problems
    else:
        assert [problem.field for problem in problems] == ["spec.outputs[0].keys"]
        assert words in problems[0].message


def test_keys_are_told_apart_by_all_of_their_bits() -> None:
    import numpy as np

    hashes = np.array([[5, 5, 5, 7], [1, 2, 3, 1]], np.uint64)
    keys = _KeySet([hashes[:, :2], hashes[:, 2:]])
    asked = np.array([[5, 5, 7, 5, 0, 9], [3, 4, 1, 1, 1, 1]], np.uint64)
    assert keys.holds(asked).tolist() == [True, False, True, True, False, False]
    assert keys.repeated == 0
    assert _KeySet([hashes, hashes[:, :1]]).repeated == 1
    assert not _KeySet([]).holds(asked).any()
