"""A static table that cannot be read ends the run, and says so in the words of its own field."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table
from pyspark.errors import AnalysisException

from backfill.api.errors import BackfillError, BadInput, InvalidPlanInput, Problem
from backfill.api.spec import BackfillSpec
from backfill.planning.plan import StaticInput, plan_directory
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace
from backfill.runtime.batch.table_files import whole_table
from backfill.runtime.source.split_reading import read_split
from backfill.runtime.switching import static_tables
from backfill.runtime.switching.batch_function import BatchInProgress, batch_in_progress, within
from backfill.runtime.switching.static_tables import StaticTables
from iceberg_tables import commit_files, data_file, equality_file, parquet_file

NAME = "lake.raw.users"
UNKNOWN = AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] it cannot be found")


class _Run:
    """What a run is for static tables."""

    def __init__(self, plan: Workspace):
        outputs = (SimpleNamespace(table="lake.raw.counts"),)
        self.settings = SimpleNamespace(plan_workspace=plan, sources=(), outputs=outputs)
        self.refused: list[BadInput] = []
        self.over = threading.Event()

    def refuse(self, error: BadInput) -> BadInput:
        self.refused.append(error)
        return error


@pytest.fixture
def users(lake: Catalog) -> Table:
    rows = pa.table({"user": [1], "at": pa.array([1_772_323_200_000_000], pa.timestamp("us"))})
    lake.create_table("raw.events", schema=rows.schema).append(rows)
    table = lake.create_table("raw.users", schema=rows.schema)
    table.append(rows)
    return table


@pytest.fixture
def run(users: Table, tmp_path: Path) -> Any:
    spec = BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "app"},
            "window": {"start": "2026-03-01T00:00:00Z", "end": "2026-03-01T06:00:00Z"},
            "sources": [{"name": "events", "table": "lake.raw.events", "timestampColumn": "at"}],
            "staticTables": [{"table": NAME}],
        }
    )
    place = Workspace(str(tmp_path / "workspace"))
    return _Run(plan_directory(place, make_plan(spec, place, parallelism=1).plan_id))


def read(run: Any, error: type[Exception]) -> str:
    with pytest.raises(error) as raised:
        StaticTables(run).frame(None, "`raw`.`Users`")  # type: ignore[arg-type]
    return str(raised.value)


def test_a_snapshot_that_expires_while_the_run_goes_on(run: Any, users: Table) -> None:
    pinned = users.metadata.current_snapshot_id
    assert pinned is not None
    users.append(pa.table({"user": [2], "at": pa.array([None], pa.timestamp("us"))}))
    users.maintenance.expire_snapshots().by_id(pinned).commit()
    message = read(run, InvalidPlanInput)
    assert message.startswith(f"spec.staticTables.asOf: snapshot {pinned} of {NAME}")
    assert "protect" not in message, "static tables have no such field"
    assert len(run.refused) == 1


def test_files_that_are_not_parquet(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataFile, "file_format", FileFormat.ORC)
    message = read(run, InvalidPlanInput)
    assert message.startswith(f"spec.staticTables: {NAME} has files that are not Parquet, but orc")


def test_a_catalog_that_does_not_answer_is_asked_again_by_the_next_attempt(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_: object) -> None:
        raise InvalidPlanInput(Problem("spec.staticTables", "no answer", may_pass=True))

    monkeypatch.setattr(static_tables, "whole_table", silent)
    assert "no answer" in read(run, BackfillError)
    assert not run.refused


def test_opening_the_table_is_no_effect_of_a_function_that_reads_it(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog is asked over the network."""

    def opened(_: object) -> None:
        assert batch_in_progress() is None
        raise InvalidPlanInput(Problem("spec.staticTables", "no answer", may_pass=True))

    monkeypatch.setattr(static_tables, "whole_table", opened)
    with within(BatchInProgress.__new__(BatchInProgress)):
        assert "no answer" in read(run, BackfillError)


@pytest.mark.parametrize(
    ("written", "fix"),
    [
        (NAME, "with a snapshot or options of its own, which Spark cannot read by itself; read it"),
        ("`lake`.`raw`.`rates`", "; add - table: lake.raw.rates"),
    ],
)
def test_what_spark_cannot_read_is_said_with_what_to_change(
    run: Any, written: str, fix: str
) -> None:
    def by_spark() -> Any:
        raise UNKNOWN

    with pytest.raises(BadInput) as raised:
        StaticTables(run).by_spark(written, by_spark)
    assert fix in str(raised.value)
    assert len(run.refused) == 1


OF_ITS_OWN = "with a snapshot or options of its own, which Spark cannot read by itself; read it"


@pytest.mark.parametrize(
    ("text", "message", "said"),
    [
        (
            "select * from plays join lake.raw.rates using (user)",
            "[TABLE_OR_VIEW_NOT_FOUND] The table or view `lake`.`raw`.`rates` cannot be found.",
            "the table lake.raw.rates in SQL text, which Spark cannot read by itself; add - table:"
            " lake.raw.rates",
        ),
        (
            "create temp view v as\nselect * FROM `lake`.raw.rates",
            "[REQUIRES_SINGLE_PART_NAMESPACE] spark_catalog requires a single-part namespace, but"
            " got `lake`.`raw`.",
            "; add - table: lake.raw.rates",
        ),
        (
            f"select * from lake.other.t join {NAME}",
            "[CATALOG_NOT_FOUND] The catalog `lake` not found.",
            "; add - table: lake.other.t",
        ),
        (
            f"select * from raw.known, lake.other.t join {NAME} version as of 1 using (user)",
            f"[TABLE_OR_VIEW_NOT_FOUND] `{NAME.replace('.', '`.`')}` cannot be found.",
            f"the table {NAME} in SQL text {OF_ITS_OWN}",
        ),
        (
            "select * from plays join raw.Users timestamp as of '2026-03-01' using (user)",
            "[TABLE_OR_VIEW_NOT_FOUND] The table or view `raw`.`Users` cannot be found.",
            f"the table raw.Users in SQL text {OF_ITS_OWN}",
        ),
    ],
)
def test_sql_of_a_table_that_spark_cannot_read_is_said_with_what_to_change(
    run: Any, text: str, message: str, said: str
) -> None:
    def original(*_: object, **__: object) -> Any:
        raise AnalysisException(message)

    with pytest.raises(BadInput) as raised:
        StaticTables(run).in_sql(original)(None, text, arg=1)
    assert said in str(raised.value)
    assert len(run.refused) == 1


@pytest.mark.parametrize(
    "text",
    [
        "select * from plays join other.raw.rates using (user)",
        "delete from lake.raw.rates where user = 1",
        "show columns from lake.raw.rates",
        "describe lake.raw.rates",
        "insert into lake.raw.rates select 1",
        "select * from lake.raw.known",
    ],
)
def test_other_sql_fails_as_it_does_without_a_backfill(run: Any, text: str) -> None:
    error = AnalysisException(
        "[TABLE_OR_VIEW_NOT_FOUND] `lake`.`raw`.`rates` or `other`.`raw`.`rates` cannot be found"
        if "known" not in text
        else "[UNRESOLVED_COLUMN] `lake`.`raw`.`known`.`user`"
    )

    def original(*_: object) -> Any:
        raise error

    with pytest.raises(AnalysisException) as raised:
        StaticTables(run).in_sql(original)(None, text)
    assert raised.value is error
    assert not run.refused


def test_no_row_is_left_out_of_a_file_whose_manifest_says_that_it_has_none(lake: Catalog) -> None:
    rows = pa.table({"user": [1, 2, 3]})
    table = lake.create_table("raw.regions", schema=rows.schema)
    file = parquet_file(table, "wrong.parquet", rows)
    names = ("file_path", "file_size_in_bytes")
    known = {name: getattr(file, name) for name in names}
    commit_files(lake, table, 1, [data_file(2, **known, record_count=0)])
    table.refresh()
    assert read_whole(table) == rows


def test_rows_of_a_table_that_was_changed_by_upserts_are_the_last_ones(lake: Catalog) -> None:
    rows = pa.table({"user": [1, 2, 3]})
    table = lake.create_table("raw.regions", schema=rows.schema)
    table.append(rows)
    table = lake.load_table("raw.regions")
    deletes = equality_file(table, "deletes.parquet", [{"user": 2}, {"user": 4}], [1])
    fresh = parquet_file(table, "fresh.parquet", pa.table({"user": [2, 4]}))
    table = commit_files(lake, table, 7, [fresh], [deletes])
    assert sorted(read_whole(table)["user"].to_pylist()) == [1, 2, 3, 4]
    wrong = equality_file(table, "wrong.parquet", [{"user": 2}], [1], equality_ids=[9])
    table = commit_files(lake, table, 8, [], [wrong])
    with pytest.raises(InvalidPlanInput, match=r"the schema has no column of id 9; compact"):
        read_whole(table)


def read_whole(table: Table) -> pa.Table:
    """The rows of ``raw.regions``, read as a static table."""
    found, splits = whole_table(
        StaticInput(
            table="lake.raw.regions",
            table_uuid=str(table.metadata.table_uuid),
            snapshot_id=table.metadata.current_snapshot_id or 0,
            schema_id=table.schema().schema_id,
        )
    )
    schema = table.schema().as_arrow()
    read = [batch for split in splits for batch in read_split(found, split, schema)]
    return pa.Table.from_batches(read, schema).cast(pa.schema([("user", pa.int64())]))
