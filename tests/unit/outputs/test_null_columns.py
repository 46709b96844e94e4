"""Columns that are null in every row of a result are found by statistics, where production's rows
have values; a column that is rarely set in production stops nobody.
"""

from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from backfill.api.errors import InvalidPlanInput
from backfill.api.output import Output, Publish, PublishMode
from backfill.outputs.null_columns import Spellings, check_decoded, staged_nulls
from backfill.outputs.staging import StagedBatch, stage_batch
from backfill.outputs.window_rows import window_rows
from staged import DAY_START_US, DAY_US, RESULT, WINDOW, make_table, output, write_files

COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ts", TimestamptzType()),
    NestedField(3, "who", StringType()),
    NestedField(4, "user", StructType(NestedField(5, "name", StringType()))),
    NestedField(6, "tags", ListType(7, StringType(), element_required=False)),
)
ALL = tuple(field.name for field in COLUMNS.fields)


def rows(count: int, *null: str, days: int = 0, one_in: int = 1) -> pa.Table:
    """Rows of a day, which is the window's or one after it. Of the ``null`` columns, only every
    ``one_in``-th row has a value, or none.
    """

    def value(column: str, number: int) -> str | None:
        return "x" if column not in null or (one_in > 1 and number % one_in == 0) else None

    made = [
        {
            "id": number,
            "ts": DAY_START_US + days * DAY_US + number * DAY_US // count,
            "who": value("who", number),
            "user": {"name": value("user.name", number)},
            "tags": [value("tags.element", number)],
        }
        for number in range(count)
    ]
    schema = schema_to_pyarrow(COLUMNS, include_field_ids=False)
    given = schema.set(schema.get_field_index("ts"), pa.field("ts", pa.int64()))
    return pa.Table.from_pylist(made, schema=given).cast(schema)


@pytest.fixture
def table(lake: Catalog) -> Table:
    return make_table(lake, columns=COLUMNS)


def batch(table: Table, given: pa.Table, number: int = 0) -> StagedBatch:
    return StagedBatch("query", number, write_files(table, given), table.spec().spec_id, 0)


def check(
    table: Table,
    staged: StagedBatch,
    *,
    to: Output | None = None,
    columns: tuple[str, ...] = ALL,
    spellings: Spellings | None = None,
) -> None:
    to = to or output()
    timed = window_rows(table.schema(), to, WINDOW)
    check_decoded(table, RESULT, to, timed, staged, columns=columns, spellings=spellings or {})


def stage(table: Table, *batches: pa.Table) -> None:
    for number, given in enumerate(batches):
        stage_batch(table, RESULT, batch(table, given, number))
    table.refresh()


def nulls(to: Output | None = None) -> tuple[str, ...]:
    return staged_nulls(to or output(), RESULT, WINDOW)


def test_first_rows_without_what_production_has_are_refused_with_every_such_column(
    table: Table,
) -> None:
    table.append(rows(500))
    with pytest.raises(InvalidPlanInput) as error:
        check(table, batch(table, rows(100, "who", "user.name", "tags.element")))
    assert str(error.value) == (
        "spec.outputs: columns who, user.name, tags.element of lake.raw.out are null in all 100 rows"
        " of the result so far, although all of production's rows have a value: the application may"
        " decode fields that its records do not have here; compare the names and types of the"
        " fields that it decodes with the columns of its sources, and rename those that differ with"
        " live.kafka.value.fields; or, if null is right, set publish.allowNull: [who, user.name,"
        " tags.element] of output summary"
    )


def test_a_name_of_the_program_that_a_column_comes_near_is_the_fix(table: Table) -> None:
    table.append(rows(500))
    near = {"WHO": (1, "wHo"), "who": (1, "wHo"), "other": (0, "Other")}
    with pytest.raises(InvalidPlanInput) as error:
        check(table, batch(table, rows(100, "who")), spellings=near)
    assert "; set spec.sources[1].live.kafka.value.fields: {WHO: wHo}; or, " in str(error.value)


@pytest.mark.parametrize(
    ("production", "result"),
    [
        (rows(500, "who"), rows(100, "who")),
        (rows(500, "who", one_in=2), rows(100, "who")),
        (rows(500), rows(5, "who", one_in=5)),
        (rows(500, "user.name", one_in=3), rows(1_000, "user.name")),
    ],
    ids=["null in production as well", "often null", "null in nearly all rows", "optional"],
)
def test_a_column_that_is_often_null_stops_no_run(
    table: Table, production: pa.Table, result: pa.Table
) -> None:
    table.append(production)
    check(table, batch(table, result))


def test_a_column_that_has_values_only_since_later_stops_no_run(table: Table) -> None:
    table.append(rows(500, "who"))
    table.append(rows(5_000, days=1))
    check(table, batch(table, rows(100, "who")))
    stage(table, rows(100, "who"))
    assert nulls() == ()


def test_a_gap_is_compared_with_the_newest_rows_of_production(table: Table) -> None:
    table.append(rows(500, days=1))
    with pytest.raises(InvalidPlanInput, match=r"column who of .* is null in all 100 rows"):
        check(table, batch(table, rows(100, "who")))


def test_few_rows_prove_little_until_there_are_more_of_them(table: Table) -> None:
    table.append(_mostly(500))
    check(table, batch(table, rows(3, "who")))
    stage(table, rows(3, "who"))
    with pytest.raises(InvalidPlanInput, match="in all 13 rows"):
        check(table, batch(table, rows(10, "who"), 1))


def _mostly(count: int) -> pa.Table:
    """Rows of which nearly all have a value."""
    few = count // 20
    return pa.concat_tables([rows(few, "who"), rows(count - few)])


def test_once_the_result_has_shown_values_production_is_not_asked_again(table: Table) -> None:
    table.append(rows(500))
    stage(table, rows(100))
    check(table, batch(table, rows(1_000, "who"), 1))


def test_columns_that_the_query_does_not_write_or_that_are_allowed_stop_no_run(
    table: Table,
) -> None:
    table.append(rows(500))
    check(table, batch(table, rows(100, "who")), columns=("id", "ts", "USER", "tags"))
    allowed = output(publish=Publish(mode=PublishMode.APPEND, allow_null=("who", "user")))
    check(table, batch(table, rows(100, "who", "user.name")), to=allowed)
    stage(table, rows(100, "who", "user.name"))
    assert nulls(allowed) == ()
    assert nulls() == ("who", "user.name")


def test_without_production_only_a_name_that_the_sources_spell_otherwise_is_refused(
    table: Table,
) -> None:
    given = batch(table, rows(100, "who", "user.name"))
    check(table, given)
    with pytest.raises(InvalidPlanInput) as error:
        check(table, given, spellings={"userName": (0, "username"), "Name": (0, "name")})
    assert "column user.name of lake.raw.out is null in all 100 rows" in str(error.value)
    assert "fields: {Name: name}" in str(error.value)


def test_rows_that_all_lack_their_time_are_refused_although_nothing_is_written(
    table: Table,
) -> None:
    empty = replace(batch(table, rows(0)), rows_without_time=100)
    with pytest.raises(InvalidPlanInput) as error:
        check(table, empty)
    assert "column ts of lake.raw.out is null in all 100 rows" in str(error.value)
    check(table, replace(empty, rows_without_time=3))
    check(table, empty, to=output(publish=Publish(allow_null=("ts",))))


def test_a_result_that_lacks_what_only_some_of_productions_rows_have_is_seen_at_the_end(
    table: Table,
) -> None:
    table.append(rows(500, "who", one_in=3))
    stage(table, rows(400, "who"))
    assert nulls() == ("who",)
    assert nulls(output(timestamp_column=None, publish=Publish())) == ()


def test_damaged_counts_of_nulls_raise_nothing_else(table: Table) -> None:
    table.append(rows(500))
    staged = batch(table, rows(100, "who"))
    for counts in ({3: -1}, {3: 2**62}, {}):
        staged.files[0].null_value_counts.clear()
        staged.files[0].null_value_counts.update(counts)
        try:
            check(table, staged)
        except InvalidPlanInput as error:
            assert counts == {3: 2**62}, error
