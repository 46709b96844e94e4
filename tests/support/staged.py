"""Results staged the way the sink stages them, without Spark."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from backfill.api.output import Output, Publish, PublishMode
from backfill.api.spec import Window
from backfill.outputs.data_files import DataFileWriter, layout
from backfill.outputs.result_names import Result
from backfill.outputs.staging import OF_BATCHES, Holds, StagedBatch, stage_batch
from backfill.outputs.table_commits import commit

RESULT = Result(
    namespace="streaming", backfill="rmi", uid="first", plan_id="0123456789abcdef", output="summary"
)
TABLE = "lake.raw.out"
HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
DAY_START_US = 1_625_961_600_000_000
"""2021-07-11T00:00:00Z."""
WINDOW = Window(start="2021-07-11T00:00:00Z", end="2021-07-12T00:00:00Z")
COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ts", TimestamptzType()),
    NestedField(3, "who", StringType()),
)
NESTED = Schema(
    *COLUMNS.fields,
    NestedField(4, "many", ListType(5, LongType())),
    NestedField(6, "meta", StructType(NestedField(7, "at", TimestamptzType()))),
    NestedField(8, "times", MapType(9, StringType(), 10, TimestamptzType())),
)

Row = tuple[int, int | None]
"""An id, and a time in µs after the start of the window's day."""


def output(mode: PublishMode = PublishMode.REPLACE, **changes: object) -> Output:
    given = {
        "name": "summary",
        "table": TABLE,
        "timestamp_column": "ts",
        "publish": Publish(mode=mode),
    }
    return Output.model_validate({**given, **changes})


def make_table(
    lake: Catalog, partition: str | None = None, columns: Schema = COLUMNS, **properties: str
) -> Table:
    table = lake.create_table("raw.out", schema=columns, properties=properties)
    if partition is not None:
        with table.update_spec() as update:
            update.add_field("ts", parse_transform(partition), "part")
    return table


def move_data(table: Table, directory: Path) -> None:
    """Has the table's data written elsewhere from now on."""
    with table.transaction() as transaction:
        transaction.set_properties({"write.data.path": f"{directory}/moved"})


def move_table(table: Table, directory: Path) -> None:
    """Has all of the table's files written elsewhere from now on."""
    commit(table, (SetLocationUpdate(location=f"{directory}/moved"),))


def rows_of(rows: Sequence[Row], who: str) -> pa.Table:
    times = [None if offset is None else DAY_START_US + offset for _, offset in rows]
    columns = {"id": [number for number, _ in rows], "ts": times, "who": [who] * len(rows)}
    return pa.table(
        columns, schema=pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("who", pa.string())])
    ).cast(schema_to_pyarrow(COLUMNS, include_field_ids=False))


def write_files(
    table: Table, rows: pa.Table, result: Result = RESULT, changes_of: int | None = None
) -> list[DataFile]:
    """Files as a task of the sink leaves them, not committed; with the changed rows of a batch in
    its directory.
    """
    directory = (
        result.staging_directory(table.metadata)
        if changes_of is None
        else result.batch_directory(table.metadata, changes_of)
    )
    writer = DataFileWriter(
        layout(table.metadata, table.schema().schema_id, table.spec().spec_id, directory), table.io
    )
    for batch in rows.to_batches():
        writer.add(batch)
    return writer.close()


def stage(
    table: Table,
    batch_id: int,
    rows: Sequence[Row],
    *,
    outside: int = 0,
    result: Result = RESULT,
    who: str = "backfill",
) -> bool:
    """Stages one batch of new files."""
    return stage_rows(table, batch_id, rows_of(rows, who), outside=outside, result=result)


def stage_rows(
    table: Table, batch_id: int, rows: pa.Table, *, outside: int = 0, result: Result = RESULT
) -> bool:
    """Stages one batch of rows that have the table's columns."""
    files = write_files(table, rows, result)
    return stage_batch(
        table, result, StagedBatch("query", batch_id, files, table.spec().spec_id, outside)
    )


def stage_as(
    table: Table,
    holds: Holds,
    batch_id: int,
    rows: Sequence[Row],
    *,
    outside: int = 0,
    result: Result = RESULT,
    who: str = "backfill",
) -> bool:
    """Stages one batch of a query in output mode update or complete."""
    changes_of = batch_id if holds in OF_BATCHES else None
    files = write_files(table, rows_of(rows, who), result, changes_of)
    batch = StagedBatch("query", batch_id, files, table.spec().spec_id, outside, holds=holds)
    return stage_batch(table, result, batch)


def content(table: Table, ref: str | None = None) -> list[tuple[object, object, object]]:
    """All rows of the main branch, or of another one, sorted by id, with times in µs after the
    start of the window's day.
    """
    table.refresh()
    snapshot = table.metadata.snapshot_by_name(ref or "main")
    if snapshot is None:
        return []
    found = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    offsets = [
        None if time is None else time - DAY_START_US
        for time in found["ts"].cast(pa.int64()).to_pylist()
    ]
    rows = zip(found["id"].to_pylist(), offsets, found["who"].to_pylist(), strict=True)
    return sorted(rows, key=lambda row: int(row[0]))


def expected(rows: Sequence[Row], who: str) -> list[tuple[object, object, object]]:
    return [(number, offset, who) for number, offset in rows]


def around_commit(
    monkeypatch: pytest.MonkeyPatch,
    table: Table,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> None:
    """Lets something happen right before or after the next commit to any table of the catalog's
    kind.
    """
    kind = type(table.catalog)
    commit = kind.commit_table

    def commit_between(self: Catalog, *args: Any) -> Any:
        monkeypatch.setattr(kind, "commit_table", commit)
        before()
        answer = commit(self, *args)
        after()
        return answer

    monkeypatch.setattr(kind, "commit_table", commit_between)
