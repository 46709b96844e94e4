"""What is staged for a delivery: batches apart from each other, in a table that goes with them."""

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from backfill.api.errors import BadInput
from backfill.api.output import Output
from backfill.outputs.cleanup import discard
from backfill.outputs.delivered_batches import (
    batches_of,
    drop_table,
    is_missing,
    make_table,
)
from backfill.outputs.staging import read_staged
from backfill.runtime.switching.deliver_outputs import calls
from staged import HOUR_US, RESULT, stage_as
from staged import make_table as make_output

COLUMNS = pa.schema(
    [("id", pa.int64()), ("tags", pa.list_(pa.string())), ("at", pa.timestamp("us", "UTC"))]
)


def delivered(table: str = "lake.staged.alerts") -> Output:
    return Output.model_validate(
        {"name": RESULT.output, "table": table, "publish": {"mode": "Deliver"}}
    )


def test_batches_with_rows_are_found_in_their_order(lake: Catalog) -> None:
    table = make_output(lake)
    for number, rows in enumerate([[(1, 0), (2, HOUR_US)], [], [(2, 0)]]):
        assert stage_as(table, "Batches", number, rows)
    assert not stage_as(table, "Batches", 2, [(2, 0)]), "a batch that is tried again"
    output = delivered(".".join(("lake", *table.name()[-2:])))
    assert [(each.number, each.rows) for each in batches_of(output, RESULT)] == [(0, 2), (2, 1)]
    staged = read_staged(table.refresh().metadata, RESULT)
    assert staged is not None
    assert (staged.rows, staged.changes, staged.parts["query"].batch_id) == (3, False, 2)


@pytest.mark.parametrize(
    ("hours", "numbers"), [(None, [0, 2, 3, 4]), (1, [0, 2, 4]), (2, [0, 4]), (99, [4])]
)
def test_batches_of_an_interval_are_one(
    lake: Catalog, hours: int | None, numbers: list[int]
) -> None:
    table = make_output(lake)
    for number in range(5):  # the last one is the flush
        stage_as(table, "Batches", number, [] if number == 1 else [(number, 0)])
    output = delivered(".".join(("lake", *table.name()[-2:])))
    starts = [hour * HOUR_US for hour in range(4)]
    joined = calls(batches_of(output, RESULT), starts, None if hours is None else hours * HOUR_US)
    assert [each.number for each in joined] == numbers
    assert sum(each.rows for each in joined) == 4


def test_the_table_is_made_and_dropped_with_the_backfill(lake: Catalog) -> None:
    output = delivered()
    assert is_missing(output)
    for _ in range(2):
        make_table(output, RESULT, COLUMNS)
    assert not is_missing(output)
    table = lake.load_table("staged.alerts")
    assert [(each.name, each.required) for each in table.schema().fields] == [
        ("id", False),
        ("tags", False),
        ("at", False),
    ]
    discard(output.table, [RESULT], [None])
    drop_table(output)
    assert is_missing(output)


def test_a_table_that_others_use_stays(lake: Catalog) -> None:
    output = delivered()
    make_table(output, RESULT, COLUMNS)
    row = pa.table({"id": [1], "tags": [["a"]], "at": [None]}, schema=COLUMNS)
    lake.load_table("staged.alerts").append(row)
    drop_table(output)
    assert not is_missing(output)
    of_somebody = delivered("lake.staged.others")
    lake.create_table("staged.others", COLUMNS)
    drop_table(of_somebody)
    assert not is_missing(of_somebody)


def test_columns_that_no_table_can_have_are_named(lake: Catalog) -> None:
    twice = pa.schema([("id", pa.int64()), ("id", pa.string())])
    with pytest.raises(
        BadInput, match=r"lake\.staged\.alerts, which would hold the rows of output"
    ):
        make_table(delivered(), RESULT, twice)
