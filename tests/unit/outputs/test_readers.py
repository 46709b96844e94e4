"""What readers of a table see before, while and after a result is published and undone: the
snapshots that docs/publishing.md lists. Streams of Spark's Iceberg source go by their operations.
"""

import duckdb
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from backfill.api.output import PublishMode
from backfill.outputs.publication import publish
from backfill.outputs.staging import summary_of
from backfill.outputs.undo_publication import Undo
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

OUTSIDE = [(1, -HOUR_US), (4, DAY_US)]
INSIDE = [(2, 0), (3, DAY_US - 1)]


@pytest.mark.parametrize(
    ("mode", "rows", "operations"),
    [
        (PublishMode.APPEND, OUTSIDE, (Operation.APPEND, Operation.DELETE)),
        (PublishMode.REPLACE, OUTSIDE, (Operation.APPEND, Operation.DELETE)),
        (PublishMode.REPLACE, OUTSIDE + INSIDE, (Operation.OVERWRITE, Operation.OVERWRITE)),
    ],
    ids=["Append", "Replace of nothing", "Replace"],
)
def test_readers_see_the_rows_of_then_or_of_now_and_one_snapshot_for_each_commit(
    lake: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    mode: PublishMode,
    rows: list[tuple[int, int]],
    operations: tuple[Operation, Operation],
) -> None:
    table = make_table(lake, "day")
    table.append(rows_of(rows, "production"))
    base = table.metadata.current_snapshot_id
    assert base is not None
    before = content(table)
    reader = load_catalog("lake").load_table("raw.out")
    stage(table, 0, [(12, 0), (13, HOUR_US)])
    assert content(table) == before, "the branch is not visible"

    begun = reader.scan(snapshot_id=base)
    seen: list[object] = []
    around_commit(monkeypatch, table, before=lambda: seen.append(content(reader.refresh())))
    published = publish(output(mode), RESULT, WINDOW, base).snapshot_id
    after = content(reader.refresh())
    assert seen == [before], "right before the commit nothing has changed"
    assert [row[0] for row in after] == [1, 4, 12, 13]

    around_commit(monkeypatch, table, before=lambda: seen.append(content(reader.refresh())))
    undone = Undo(output(mode), RESULT, WINDOW, published).run()
    assert seen == [before, after]
    assert content(reader.refresh()) == before
    assert sorted(begun.to_arrow()["id"].to_pylist()) == sorted(row[0] for row in rows)
    assert [row[0] for row in content_of(reader, published)] == [1, 4, 12, 13]

    made = [reader.metadata.snapshot_by_id(number) for number in (published, undone)]
    assert tuple(each.summary.operation for each in made if each and each.summary) == operations
    assert [each.parent_snapshot_id for each in made if each] == [base, published]
    summaries = [summary_of(each) for each in made if each]
    assert all(summary["backfill.name"] == "rmi" for summary in summaries)
    assert summaries[1]["backfill.undoes"] == str(published)


def test_duckdb_reads_the_files_of_the_snapshot_that_pyiceberg_plans(lake: Catalog) -> None:
    table = make_table(lake, "day")
    table.append(rows_of(OUTSIDE + INSIDE, "production"))
    base = table.metadata.current_snapshot_id
    stage(table, 0, [(12, 0), (13, HOUR_US)])
    published = publish(output(PublishMode.REPLACE), RESULT, WINDOW, base).snapshot_id
    table.refresh()

    def by_files(snapshot: int | None) -> list[tuple[int]]:
        tasks = list(table.scan(snapshot_id=snapshot).plan_files())
        assert not any(task.delete_files for task in tasks)
        files = [task.file.file_path.removeprefix("file://") for task in tasks]
        return duckdb.read_parquet(files).select("id").order("id").fetchall()

    assert by_files(base) == [(1,), (2,), (3,), (4,)]
    assert by_files(published) == [(1,), (4,), (12,), (13,)]
    connection = table.scan(snapshot_id=published).to_duckdb("published")
    found = connection.sql("select id from published order by id").fetchall()
    assert found == by_files(published)


def content_of(table: Table, snapshot: int) -> list[tuple[int]]:
    """The ids of a snapshot that is not the current one any more."""
    found = table.scan(snapshot_id=snapshot).to_arrow()
    return sorted((number,) for number in found["id"].to_pylist())
