"""Tables of format version 3: every row has a number, which it keeps where it stays, and which no
other row gets.

Iceberg's own library reads such tables in tests/spark/test_icebergs_runtime.py.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.types import LongType, NestedField

from backfill.api.errors import BackfillError, CanNotUndo
from backfill.iceberg.format_v3 import NumberedFile, with_numbered_files
from backfill.iceberg.table_scan import scan_files
from backfill.outputs.output_tables import check_outputs
from backfill.outputs.publication import publish
from backfill.outputs.row_numbers import read_numbered_rows
from backfill.outputs.table_commits import Append, as_writer, commit_produced
from backfill.outputs.undo_publication import Undo
from iceberg_tables import (
    commit_manifests,
    data_file,
    deletion_vectors,
    upgraded,
    write_manifest,
)
from staged import (
    COLUMNS,
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
    write_files,
)

OLD = [(1, -HOUR_US), (2, 0), (3, DAY_US - 1), (4, DAY_US), (5, None)]
STAY = [OLD[0], *OLD[3:]]
NEW = [(12, 0), (13, HOUR_US)]
BATCHES = 120
"""More than are kept in manifests of their own."""

Numbers = dict[int, tuple[int, int]]
"""By a row's id, its number and the sequence number of its last change."""


@pytest.mark.parametrize("partition", [None, "day", "month", "bucket[4]"])
def test_rows_that_stay_keep_their_numbers_and_new_ones_get_others(
    lake: Catalog, partition: str | None
) -> None:
    table = _make_table(lake, partition)
    _append(table, OLD)
    _append(table, [(6, 2 * DAY_US)])
    before, free = _numbers(table), table.metadata.next_row_id
    base = table.metadata.current_snapshot_id
    stage(table, 0, NEW)
    publish(output(), RESULT, WINDOW, base)
    assert content(table) == expected([*STAY, (6, 2 * DAY_US)], "production") + expected(
        NEW, "backfill"
    )
    after = _numbers(table)
    assert {row: after[row] for row in before if row in after} == {
        row: before[row] for row, _ in [*STAY, (6, 0)]
    }
    assert len({number for number, _ in after.values()}) == len(after)
    assert min(after[row][0] for row, _ in NEW) >= free
    assert table.metadata.next_row_id > max(number for number, _ in after.values())


def test_files_keep_their_numbers_when_manifests_are_merged(lake: Catalog) -> None:
    table = _make_table(lake)
    _append(table, OLD)
    seen: Numbers = {}
    for batch in range(BATCHES):
        stage(table, batch, [(100 + batch, batch)])
        table.refresh()
        if batch % 30 == 29:
            now = _numbers(table, RESULT.branch)
            assert {row: now[row] for row in seen} == seen
            assert len({number for number, _ in now.values()}) == len(now)
            seen = now
    manifests = table.metadata.snapshot_by_name(RESULT.branch).manifests(table.io)
    assert len(seen) == BATCHES > len(manifests)


@pytest.mark.parametrize("partition", [None, "day"])
def test_what_is_restored_has_the_numbers_that_it_had(lake: Catalog, partition: str | None) -> None:
    table = _make_table(lake, partition)
    _append(table, OLD)
    before, base = _numbers(table), table.metadata.current_snapshot_id
    stage(table, 0, NEW)
    published = publish(output(), RESULT, WINDOW, base).snapshot_id
    _append(table, [(6, 2 * DAY_US)])
    Undo(output(), RESULT, WINDOW, published).run()
    assert content(table) == expected([*OLD, (6, 2 * DAY_US)], "production")
    after = _numbers(table)
    assert {row: after[row] for row in before} == before
    again = replace(RESULT, backfill="again")
    base = table.metadata.current_snapshot_id
    stage(table, 0, NEW, result=again)
    publish(output(), again, WINDOW, base)
    rewritten = _numbers(table)
    assert {row: rewritten[row] for row, _ in STAY} == {row: before[row] for row, _ in STAY}


def test_rows_are_not_restored_without_their_deletion_vector(lake: Catalog) -> None:
    """Although the file with the vector is still there, for rows of another file."""
    table = _make_table(lake)
    _append(table, OLD[1:3])
    _append(table, [(6, 2 * DAY_US), (7, 2 * DAY_US)])
    outside, inside = (task.file.file_path for task in table.scan().plan_files())
    place = Path(table.location()) / "data" / "vectors.puffin"
    deletion_vectors(place, {inside: [0], outside: [0]})
    vectors = [
        data_file(
            3,
            content=DataFileContent.POSITION_DELETES,
            file_format=FileFormat.PUFFIN,
            file_path=str(place),
            record_count=1,
            file_size_in_bytes=place.stat().st_size,
            referenced_data_file=path,
        )
        for path in (inside, outside)
    ]
    table = _with_deletes(lake, table, vectors, 77)
    assert content(table) == expected([OLD[2], (7, 2 * DAY_US)], "production")
    base = table.metadata.current_snapshot_id
    stage(table, 0, NEW)
    published = publish(output(), RESULT, WINDOW, base).snapshot_id
    table.refresh()
    Undo(output(), RESULT, WINDOW, published).check()
    table = _with_deletes(lake, table, vectors[1:], 78, operation=Operation.REPLACE)
    with pytest.raises(CanNotUndo, match=r"delete files .* were removed .*vectors\.puffin"):
        Undo(output(), RESULT, WINDOW, published).check()


def test_a_branch_keeps_snapshots_as_long_as_before(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of(STAY, "production"))
    base = table.metadata.current_snapshot_id
    kept = SetSnapshotRefUpdate(
        ref_name=MAIN_BRANCH,
        type="branch",
        snapshot_id=base,
        min_snapshots_to_keep=7,
        max_snapshot_age_ms=1_000_000,
        max_ref_age_ms=None,
    )
    table._do_commit((kept,), ())
    table.refresh()
    stage(table, 0, NEW)
    publish(output(), RESULT, WINDOW, base)
    main = table.refresh().metadata.refs[MAIN_BRANCH]
    assert main.snapshot_id != base
    assert (main.min_snapshots_to_keep, main.max_snapshot_age_ms) == (7, 1_000_000)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("rows", [[], [(50, 0)]])
def test_no_sequence_number_is_assigned_twice(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, rows: list[Row], version: int
) -> None:
    """While others stage into new branches, from which a commit of an old state expects nothing."""
    table = make_table(lake) if version == 2 else _make_table(lake)
    _append(table, OLD)
    base, other = table.metadata.current_snapshot_id, lake.load_table("raw.out")

    def stage_twice(name: str) -> None:
        for batch in range(2):
            stage(other.refresh(), batch, rows, result=replace(RESULT, backfill=name))

    around_commit(monkeypatch, table, before=lambda: stage_twice("first"))
    stage(table, 0, NEW)
    around_commit(monkeypatch, table, before=lambda: stage_twice("second"))
    publish(output(), RESULT, WINDOW, base)
    metadata = table.refresh().metadata
    numbers = [each.sequence_number for each in metadata.snapshots]
    assert len({*numbers}) == len(numbers)
    assert metadata.last_sequence_number == max(numbers)


def test_rows_keep_the_numbers_that_they_get_while_a_commit_is_tried(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a table that was upgraded get theirs with whatever is committed next."""
    table = make_table(lake)
    _append(table, OLD)
    table = upgraded(lake, table)
    base, other = table.metadata.current_snapshot_id, lake.load_table("raw.out")
    stage(table, 0, NEW)
    then: Numbers = {}

    def number_rows() -> None:
        _append(other, [(6, 2 * DAY_US)])
        then.update(_numbers(other))

    around_commit(monkeypatch, table, before=number_rows)
    publish(output(), RESULT, WINDOW, base)
    now = _numbers(table)
    assert {row: now[row] for row, _ in STAY} == {row: then[row] for row, _ in STAY}


@pytest.mark.parametrize("free", [None, -5])
def test_a_table_that_does_not_say_which_numbers_are_free_is_refused(
    lake: Catalog, free: int | None
) -> None:
    table = _make_table(lake)
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(metadata | {"next-row-id": free}), "utf-8")
    with pytest.raises(BackfillError, match=f"table raw.out .* next-row-id is {free}"):
        stage(lake.load_table("raw.out"), 0, NEW)


def test_a_column_with_the_name_of_the_numbers_is_refused_before_the_run(lake: Catalog) -> None:
    columns = Schema(*COLUMNS.fields, NestedField(4, "_row_id", LongType()))
    table = make_table(lake, columns=columns)
    assert check_outputs([output()], [RESULT], WINDOW) == []
    upgraded(lake, table)
    (problem,) = check_outputs([output()], [RESULT], WINDOW)
    assert "lake.raw.out has a column _row_id" in problem.message


def _make_table(lake: Catalog, partition: str | None = None) -> Table:
    return upgraded(lake, make_table(lake, partition))


def _append(table: Table, rows: list[Row]) -> None:
    """As another program's commit."""
    table.refresh()
    writer = as_writer(table, table.spec().spec_id)
    producer = Append(Operation.APPEND, writer.transaction(), writer.io)
    for file in write_files(table, rows_of(rows, "production")):
        producer.append_data_file(file)
    commit_produced(table, producer, MAIN_BRANCH)
    table.refresh()


def _with_deletes(
    lake: Catalog,
    table: Table,
    vectors: list[DataFile],
    snapshot: int,
    operation: Operation = Operation.DELETE,
) -> Table:
    """Gives the table exactly these deletion vectors."""
    current = table.current_snapshot()
    data = [
        each
        for each in current.manifests(table.io)
        if each.content is ManifestContent.DATA and not each.deleted_files_count
    ]
    path = f"{table.location()}/metadata/{snapshot}-deletes.avro"
    deletes = write_manifest(table, path, vectors, snapshot, deletes=True)
    return commit_manifests(lake, table, [*data, deletes], snapshot, operation=operation)


def _numbers(table: Table, branch: str = MAIN_BRANCH) -> Numbers:
    numbered = with_numbered_files(table.refresh())
    found: Numbers = {}
    for task in scan_files(numbered, table.metadata.refs[branch].snapshot_id):
        assert isinstance(task.file, NumberedFile)
        for rows in read_numbered_rows(table, task, task.file):
            for row in rows.to_pylist():
                found[row["id"]] = (row["_row_id"], row["_last_updated_sequence_number"])
    return found
