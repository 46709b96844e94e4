"""Outputs that cannot work are refused before anything runs: every mistake, with its field and what
to do.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchIcebergTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, HourTransform, parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
)
from pyiceberg.utils.config import Config

from backfill.api.errors import CanNotPublish
from backfill.api.output import Output, PublishMode
from backfill.api.source import Source
from backfill.api.spec import Window
from backfill.outputs.output_tables import check_outputs
from backfill.outputs.publication import publish
from iceberg_tables import commit_files, equality_file
from staged import (
    COLUMNS,
    DAY_US,
    NESTED,
    RESULT,
    WINDOW,
    content,
    expected,
    make_table,
    output,
    rows_of,
    stage,
)

BY_VALUE = (
    "spec.outputs[0].table: table lake.raw.out has equality deletes in the window, which cannot be applied"
    " when files are rewritten; compact the table"
)


def problems(*outputs: Output) -> list[str]:
    results = [replace(RESULT, output=one.name) for one in outputs]
    return [str(problem) for problem in check_outputs(outputs, results, WINDOW)]


def test_an_output_that_works_has_no_problem(lake: Catalog) -> None:
    make_table(lake, "day")
    assert problems(output()) == []


@pytest.mark.parametrize(
    ("column", "unit", "field", "problem"),
    [
        ("tz", None, "timestampColumn", "table lake.raw.out has no column tz; did you mean ts?"),
        (
            "who",
            None,
            "timestampColumn",
            "column who of lake.raw.out is a string; use a timestamp or date column",
        ),
        (
            "id",
            None,
            "timestampUnit",
            "column id of lake.raw.out is a long; its unit is missing; set timestampUnit",
        ),
        (
            "ts",
            "ms",
            "timestampUnit",
            "column ts of lake.raw.out is a timestamptz, which has its own unit; omit",
        ),
        (
            "many.element",
            None,
            "timestampColumn",
            "column many.element of lake.raw.out is a long in a list or map; use",
        ),
        (
            "times['ts']",
            None,
            "timestampColumn",
            "times['ts'] of lake.raw.out is a value of a map, which only sources can use; use",
        ),
    ],
)
def test_a_timestamp_column_that_does_not_tell_the_time_is_refused(
    lake: Catalog, column: str, unit: str | None, field: str, problem: str
) -> None:
    make_table(lake, columns=NESTED)
    (found,) = problems(output(timestamp_column=column, timestamp_unit=unit))
    assert found.startswith(f"spec.outputs[0].{field}: {problem}")


@pytest.mark.parametrize(
    ("start", "end", "fields"),
    [
        ("2021-07-11T00:00:00Z", "2021-07-12T00:00:00Z", []),
        ("2021-07-11T04:00:00Z", "2021-07-12T00:00:00Z", ["start"]),
        ("2021-07-11T04:00:00Z", "2021-07-12T04:00:00Z", ["start", "end"]),
    ],
)
def test_a_window_that_cuts_a_day_of_a_date_column_is_refused(
    lake: Catalog, start: str, end: str, fields: list[str]
) -> None:
    make_table(lake, columns=Schema(*COLUMNS.fields, NestedField(4, "day", DateType())))
    found = check_outputs(
        [output(timestamp_column="day")],
        [RESULT],
        Window.model_validate({"start": start, "end": end}),
    )
    assert [problem.field for problem in found] == [f"spec.window.{field}" for field in fields]


def test_a_nested_timestamp_column_is_fine(lake: Catalog) -> None:
    make_table(lake, columns=NESTED)
    assert problems(output(timestamp_column="meta.at")) == []


def test_a_table_of_format_1_whose_old_partitioning_can_not_be_written_is_refused_before_the_run(
    lake: Catalog,
) -> None:
    table = make_table(lake, **{"format-version": "1"})
    for column in ("id", "who"):
        with table.update_spec() as update:
            update.add_field(column, BucketTransform(3), f"by_{column}")
        with table.update_spec() as update:
            update.remove_field(f"by_{column}")
    with table.update_schema() as update:
        update.delete_column("who")
    fix = "make the column optional, or use a table that was never partitioned by it"
    required = (
        "cannot be written: the column is required, and a partition field that was removed is null"
    )
    dropped = "cannot be written: the type of its values is unknown"
    assert problems(output()) == [
        (
            "spec.outputs[0].table: table lake.raw.out is partitioned by void(id), which"
            f" {required}; {fix}"
        ),
        (
            "spec.outputs[0].table: table lake.raw.out is partitioned by void(a dropped column),"
            f" which {dropped}; {fix}"
        ),
    ]


@pytest.mark.parametrize(
    ("kind", "transform", "why"),
    [
        (DoubleType(), "identity", "rows with 0.0 and -0.0 would be written twice, and those with"),
        (BinaryType(), "truncate[2]", "FeatureUnsupported => Unsupported data type for truncate"),
    ],
)
def test_partitions_that_pyiceberg_writes_wrongly_or_not_are_refused_before_the_run(
    lake: Catalog, kind: IcebergType, transform: str, why: str
) -> None:
    table = make_table(lake, columns=Schema(*COLUMNS.fields, NestedField(4, "of", kind)))
    with table.update_spec() as update:
        update.add_field("of", parse_transform(transform), "part")
    (problem,) = problems(output())
    assert problem.startswith(
        f"spec.outputs[0].table: table lake.raw.out is partitioned by {transform}(of), which cannot"
        f" be written: {why}"
    )
    assert problem.endswith("; partition the table in another way")


@pytest.mark.parametrize("mode", [PublishMode.REPLACE, PublishMode.UPSERT, PublishMode.APPEND])
def test_equality_deletes_in_the_window_are_found_before_the_run_that_would_replace_rows(
    lake: Catalog, mode: PublishMode
) -> None:
    table = make_table(lake, "day")
    table.append(rows_of([(1, 0), (2, 2 * DAY_US)], "production"))
    outside, inside = sorted(
        (task.file for task in table.scan().plan_files()),
        key=lambda file: file.partition[0],
        reverse=True,
    )
    wanted = output(mode, keys=("id",) if mode is PublishMode.UPSERT else ())
    for number, (file, day, where) in enumerate(((outside, 2, []), (inside, 0, [BY_VALUE]))):
        rows = [{"ts": datetime(2021, 7, 11 + day, tzinfo=UTC)}]
        deletes = equality_file(table, f"{number}.parquet", rows, (2,), partition=file.partition)
        table = commit_files(lake, lake.load_table("raw.out"), 70 + number, [], [deletes])
        assert problems(wanted) == (where if mode is not PublishMode.APPEND else [])


def test_an_encrypted_table_is_refused_before_the_run(lake: Catalog) -> None:
    make_table(lake, **{"encryption.key-id": "lake-key"})
    assert problems(output()) == [
        "spec.outputs[0].table: table lake.raw.out is encrypted, and a backfill would write plain"
        " files; use a table without encryption"
    ]


@pytest.mark.parametrize(("version", "old"), [("1", "void"), ("2", None)])
def test_several_partition_fields_of_one_column_are_refused_before_the_run(
    lake: Catalog, version: str, old: str | None
) -> None:
    table = make_table(lake, "day", **{"format-version": version})
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(3), "by_id")
    with table.update_spec() as update:
        update.remove_field("part")
        update.add_field("ts", HourTransform(), "hour")
    said = (
        "spec.outputs[0].table: table lake.raw.out has several partition fields of column ts"
        f" ({old}, hour), which PyIceberg cannot write; use a table with one partition field of"
        " each column"
    )
    assert problems(output()) == ([] if old is None else [said])
    if old is not None:
        with pytest.raises(ValueError, match="redundant partitions"):
            stage(table, 0, [(1, 0)])


def test_files_whose_partition_lost_its_column_are_found_before_the_run_that_would_replace_them(
    lake: Catalog,
) -> None:
    table = make_table(lake)
    with table.update_spec() as update:
        update.add_identity("who")
    table.append(rows_of([(1, 0)], "production"))
    table.append(rows_of([(2, DAY_US)], "after"))
    with table.update_spec() as update:
        update.remove_field("who")
    base = table.metadata.current_snapshot_id
    stage(table, 0, [(11, 0)])
    with table.update_schema() as update:
        update.delete_column("who")
    other = [replace(RESULT, uid="second", backfill="another")]
    (found,) = check_outputs([output()], other, WINDOW)
    assert (
        str(found)
        == "spec.outputs[0].table: lake.raw.out: files in the window are partitioned by who,"
        " whose column was dropped; PyIceberg cannot replace such files; rewrite them with the"
        " table's current partitioning"
    )
    assert check_outputs([output(PublishMode.APPEND)], other, WINDOW) == []
    next_day = Window(start="2021-07-13T00:00:00Z", end="2021-07-14T00:00:00Z")
    assert check_outputs([output()], other, next_day) == []
    with pytest.raises(CanNotPublish, match="whose column was dropped"):
        publish(output(), RESULT, WINDOW, base)


def test_replace_needs_a_timestamp_column(lake: Catalog) -> None:
    make_table(lake)
    assert problems(output(timestamp_column=None)) == [
        "spec.outputs[0].timestampColumn: Replace needs to know which rows of the table belong to"
        " the window; set timestampColumn"
    ]
    assert problems(output(PublishMode.APPEND, timestamp_column=None)) == []


def test_the_branch_of_an_earlier_backfill_of_this_name_is_in_nobodys_way(lake: Catalog) -> None:
    table = make_table(lake)
    stage(table, 0, [(1, 0)], result=replace(RESULT, uid="earlier"))
    assert problems(output()) == []


@pytest.mark.parametrize(
    ("namespace", "branch"), [("default", "backfill/rmi"), ("elsewhere", "backfill/elsewhere/rmi")]
)
def test_a_namesake_in_another_namespace_has_a_branch_of_its_own(
    lake: Catalog, namespace: str, branch: str
) -> None:
    table = make_table(lake)
    namesake = replace(RESULT, namespace=namespace)
    stage(table, 0, [(1, 0)], result=namesake, who="namesake")
    assert problems(output()) == []
    stage(table, 0, [(2, 0)])
    assert content(table, branch) == expected([(1, 0)], "namesake")
    assert content(table, "backfill/streaming/rmi") == expected([(2, 0)], "backfill")


def test_missing_tables_of_all_outputs_are_told_at_once(lake: Catalog) -> None:
    first, second = problems(
        output(name="a", table="lake.raw.no"), output(name="b", table="lake.nowhere.no")
    )
    assert first.startswith("spec.outputs[0].table: table lake.raw.no does not exist")
    assert second.startswith("spec.outputs[1].table: table lake.nowhere.no does not exist")


def test_a_table_of_another_file_format_is_refused(lake: Catalog) -> None:
    make_table(lake, **{"write.format.default": "avro"})
    assert problems(output()) == [
        "spec.outputs[0].table: table lake.raw.out is written as avro, but a backfill writes"
        " Parquet; set the table property write.format.default to parquet"
    ]


@pytest.mark.parametrize("mode", [mode for mode in PublishMode if mode is not PublishMode.EXPORT])
@pytest.mark.parametrize(
    "name", ["lake.raw.out", "lake.raw.OUT", "twin.raw.registered", "twin.raw.copied"]
)
def test_two_outputs_of_one_table_are_refused_under_whatever_names(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: PublishMode, name: str
) -> None:
    _alias(make_table(lake), monkeypatch, tmp_path, name)
    (found,) = problems(output(PublishMode.REPLACE, name="a"), output(mode, name="b", table=name))
    assert (
        found == f"spec.outputs[1].table: {name} is also the table of output a (lake.raw.out); "
        "publish one output per table; run one Backfill for each of them"
    )


@pytest.mark.parametrize(
    "name", ["lake.raw.out", "lake.raw.OUT", "twin.raw.registered", "twin.raw.copied"]
)
def test_an_output_that_the_application_also_reads_is_refused_under_whatever_names(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    _alias(make_table(lake), monkeypatch, tmp_path, name)
    lake.create_table("raw.other", schema=COLUMNS)
    other, own = (
        {"name": table, "table": table, "timestampColumn": "ts"}
        for table in ("lake.raw.other", name)
    )
    sources = [Source.model_validate(other), Source.model_validate(own)]
    (found,) = check_outputs([output()], [RESULT], WINDOW, sources)
    assert (
        str(found)
        == 'spec.outputs[0].table: "lake.raw.out" is also the table of spec.sources[1]: the'
        " application would read the old rows of its own output; write to another table, or"
        " choose the rows to read with spec.sources[1].snapshot (id or asOf)"
    )
    chosen = Source.model_validate({**own, "snapshot": {"asOf": "2021-07-13T00:00:00Z"}})
    assert check_outputs([output()], [RESULT], WINDOW, [sources[0], chosen]) == []


def test_sources_that_can_not_be_opened_are_left_to_planning(lake: Catalog) -> None:
    make_table(lake)
    missing = Source.model_validate(
        {"name": "a", "table": "lake.raw.missing", "timestampColumn": "ts"}
    )
    assert check_outputs([output()], [RESULT], WINDOW, [missing]) == []


def against(table: str, **reference: str) -> dict[str, object]:
    wish = {"against": "Reference", "reference": {"table": table, **reference}}
    return {"validate": {**wish, "keys": ["id"], "ignore": ["ts"]}}


WHERE = "spec.outputs[0].validate.reference"


@pytest.mark.parametrize("name", ["lake.raw.OUT", "twin.raw.registered", "twin.raw.copied"])
def test_a_reference_that_is_the_output_under_another_name_is_refused(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    _alias(make_table(lake), monkeypatch, tmp_path, name)
    assert problems(output(**against(name))) == [
        f'{WHERE}.table: "{name}" is the table of the output itself; remove reference,'
        " and set against: Production"
    ]


@pytest.mark.parametrize(
    ("reference", "start"),
    [
        ({}, None),
        ({"timestampColumn": "day"}, None),
        ({"timestampColumn": "ms", "timestampUnit": "ms"}, None),
        ({"timestampColumn": "ms"}, f"{WHERE}.timestampUnit: column ms of lake.audit.out is a"),
        ({"timestampColumn": "tss"}, f"{WHERE}.timestampColumn: table lake.audit.out has no"),
        ({"timestampColumn": "who"}, f"{WHERE}.timestampColumn: column who of lake.audit.out is a"),
        ({"timestampUnit": "ms"}, f"{WHERE}.timestampUnit: column ts of lake.audit.out is a"),
    ],
)
def test_the_time_of_a_reference_may_be_in_a_column_of_its_own(
    lake: Catalog, reference: dict[str, str], start: str | None
) -> None:
    make_table(lake)
    lake.create_namespace("audit")
    more = (NestedField(4, "ms", LongType()), NestedField(5, "day", DateType()))
    lake.create_table("audit.out", schema=Schema(*COLUMNS.fields, *more))
    found = problems(output(**against("lake.audit.out", **reference)))
    assert len(found) == (start is not None)
    assert "".join(found).startswith(start or "")


def test_the_unit_of_the_outputs_time_is_not_that_of_a_timestamp(lake: Catalog) -> None:
    numbers = Schema(*(each for each in COLUMNS.fields if each.name != "ts"))
    make_table(lake, columns=Schema(*numbers.fields, NestedField(4, "ts", LongType())))
    lake.create_namespace("audit")
    lake.create_table("audit.out", schema=COLUMNS)
    wish = against("lake.audit.out")
    assert problems(output(timestamp_unit="ms", **wish)) == []


def test_a_reference_of_another_format_is_refused(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(lake)
    load = SqlCatalog.load_table

    def fake_load(catalog: SqlCatalog, name: str) -> Table:
        """As a catalog does that also knows tables of Hive."""
        if name == "hive.out":
            raise NoSuchIcebergTableError("Property table_type is hudi, expected iceberg")
        return load(catalog, name)

    monkeypatch.setattr(SqlCatalog, "load_table", fake_load)
    assert problems(output(**against("lake.hive.out"))) == [
        f"{WHERE}.table: lake.hive.out is not an Iceberg table; use an Iceberg table"
    ]


def test_every_problem_of_a_reference_is_told_at_once(lake: Catalog) -> None:
    make_table(lake)
    assert problems(output(**against("lake.raw.ou"))) == [
        f"{WHERE}.table: table lake.raw.ou does not exist; did you mean lake.raw.out?"
    ]
    lake.create_namespace("audit")
    lake.create_table("audit.out", schema=Schema(NestedField(1, "day", DateType())))
    half = Window.model_validate({"start": "2021-07-11T04:00:00Z", "end": "2021-07-12T00:00:00Z"})
    asked = output(**against("lake.audit.out", timestampColumn="day"))
    found = [str(problem) for problem in check_outputs([asked], [RESULT], half)]
    assert [each.split(":")[0] for each in found] == [
        f"{WHERE}.table",
        f"{WHERE}.table",
        "spec.window.start",
    ]
    assert (
        "column day of lake.audit.out, which decides what is in the window, is a date" in found[2]
    )


def _alias(table: Table, monkeypatch: pytest.MonkeyPatch, directory: Path, name: str) -> None:
    """Gives a table another name, as the catalog of another team or a catalog that ignores case
    would.
    """
    catalog, identifier = name.split(".", 1)
    if name == "lake.raw.OUT":
        table.catalog.register_table(identifier, table.metadata_location)
    if catalog == "lake":
        return
    for key, value in {
        "type": "sql",
        "uri": f"sqlite:///{directory}/twin.db",
        "warehouse": f"{directory}/warehouse",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TWIN__{key.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    twin = load_catalog("twin")
    twin.create_namespace("raw")
    if identifier == "raw.registered":
        twin.register_table(identifier, table.metadata_location)
    else:
        twin.create_table(identifier, schema=COLUMNS, location=f"file://{table.location()}/")


def test_a_branch_that_is_there_before_the_run_is_told_with_its_owner(lake: Catalog) -> None:
    stage(make_table(lake), 0, [(1, 0)])
    (found,) = problems(output())
    assert (
        f"branch {RESULT.branch} of the output's table already contains plan 0123456789abcdef of"
        " Backfill streaming/rmi" in found
    )
