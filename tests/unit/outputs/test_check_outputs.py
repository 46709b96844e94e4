"""Outputs that can not work are refused before anything runs: every mistake, with its field and what to do."""

from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog

from backfill.api.backfill import Output, PublishMode
from backfill.outputs.tables import check_outputs
from staged import NESTED, RESULT, WINDOW, content, expected, make_table, output, stage


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
        ("who", None, "timestampColumn", "column who of lake.raw.out is a string; use a timestamp or date column"),
        ("id", None, "timestampUnit", "column id of lake.raw.out is a long; its unit is missing; set timestampUnit"),
        ("ts", "ms", "timestampUnit", "column ts of lake.raw.out is a timestamptz, which has its unit; leave"),
        ("many.element", None, "timestampColumn", "column many.element of lake.raw.out is a long in a list or map; use"),
    ],
)
def test_a_timestamp_column_that_does_not_tell_the_time_is_refused(
    lake: Catalog, column: str, unit: str | None, field: str, problem: str
) -> None:
    make_table(lake, columns=NESTED)
    (found,) = problems(output(timestamp_column=column, timestamp_unit=unit))
    assert found.startswith(f"spec.outputs[0].{field}: {problem}")


def test_a_nested_timestamp_column_is_fine(lake: Catalog) -> None:
    make_table(lake, columns=NESTED)
    assert problems(output(timestamp_column="meta.at")) == []


def test_replace_needs_a_timestamp_column(lake: Catalog) -> None:
    make_table(lake)
    assert problems(output(timestamp_column=None)) == [
        "spec.outputs[0].timestampColumn: Replace needs to know which rows of the table belong to the window; set timestampColumn"
    ]
    assert problems(output(PublishMode.APPEND, timestamp_column=None)) == []


def test_the_branch_of_an_earlier_backfill_of_this_name_is_in_nobodys_way(lake: Catalog) -> None:
    table = make_table(lake)
    stage(table, 0, [(1, 0)], result=replace(RESULT, uid="earlier"))
    assert problems(output()) == []


@pytest.mark.parametrize(("namespace", "branch"), [("default", "backfill/rmi"), ("elsewhere", "backfill/elsewhere/rmi")])
def test_a_namesake_in_another_namespace_has_a_branch_of_its_own(lake: Catalog, namespace: str, branch: str) -> None:
    table = make_table(lake)
    namesake = replace(RESULT, namespace=namespace)
    stage(table, 0, [(1, 0)], result=namesake, who="namesake")
    assert problems(output()) == []
    stage(table, 0, [(2, 0)])
    assert content(table, branch) == expected([(1, 0)], "namesake")
    assert content(table, "backfill/streaming/rmi") == expected([(2, 0)], "backfill")


def test_missing_tables_of_all_outputs_are_told_at_once(lake: Catalog) -> None:
    first, second = problems(output(name="a", table="lake.raw.no"), output(name="b", table="lake.nowhere.no"))
    assert first.startswith("spec.outputs[0].table: table lake.raw.no does not exist")
    assert second.startswith("spec.outputs[1].table: table lake.nowhere.no does not exist")


def test_a_table_of_another_file_format_is_refused(lake: Catalog) -> None:
    make_table(lake, **{"write.format.default": "avro"})
    assert problems(output()) == [
        "spec.outputs[0].table: table lake.raw.out is written as avro, and a backfill writes Parquet; "
        "set the table property write.format.default to parquet"
    ]


def test_two_outputs_of_one_table_can_not_both_replace_its_window(lake: Catalog) -> None:
    make_table(lake)
    found = problems(output(name="a"), output(PublishMode.APPEND, name="b"))
    assert found == [
        "spec.outputs[0].publish.mode: lake.raw.out is also written by the output b; replacing the window would remove its rows; "
        "use Append, or two Backfills one after the other"
    ]
    assert problems(output(PublishMode.APPEND, name="a"), output(PublishMode.APPEND, name="b")) == []


def test_a_branch_that_is_there_before_the_run_is_told_with_its_owner(lake: Catalog) -> None:
    stage(make_table(lake), 0, [(1, 0)])
    (found,) = problems(output())
    assert f"branch {RESULT.branch} of the output's table already holds plan 0123456789abcdef of Backfill streaming/rmi" in found
