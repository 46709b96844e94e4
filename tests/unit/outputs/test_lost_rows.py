"""What Replace would remove without replacement is counted by stretches of the window, whatever the
layout of the table's files.
"""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DateType, LongType, NestedField

from backfill.api.approval import exceeds
from backfill.api.output import PublishMode
from backfill.api.quantities import to_us
from backfill.api.status import WindowLosses
from backfill.controller.jobs.kinds.settle import SettleJob
from backfill.controller.jobs.staged_outputs import StagedOutput
from backfill.outputs.lost_rows import count_losses
from backfill.outputs.publication import publish
from iceberg_tables import commit_files, data_file, position_deletes
from staged import (
    DAY_START_US,
    DAY_US,
    HOUR_US,
    RESULT,
    WINDOW,
    Row,
    make_table,
    output,
    rows_of,
    stage,
    stage_rows,
)

MINUTE_US = 60_000_000
EVERY_12_S = [(number, number * 12_000_000) for number in range(7_200)]
"""7,200 rows of a day."""
Listed = tuple[float, float, int, int]
"""Start and end in hours of the day, rows of production, rows of the result."""


def without(rows: Iterable[Row], first: float, end: float, one_in: int = 1) -> list[Row]:
    """Without one in so many of the rows in [first, end), in hours of the day."""
    lost = range(int(first * HOUR_US), int(end * HOUR_US))
    return [row for row in rows if row[1] not in lost or row[0] % one_in]


def losses(lake: Catalog, production: list[Row], result: list[Row]) -> WindowLosses:
    table = make_table(lake)
    table.append(rows_of(production, "production"))
    stage(table, 0, result)
    return count_losses(output(), RESULT, WINDOW)


def listed(found: WindowLosses, beyond: str = "1") -> list[Listed]:
    assert not found.problem
    return [
        (
            (to_us(each.start) - DAY_START_US) / HOUR_US,
            (to_us(each.end) - DAY_START_US) / HOUR_US,
            each.production_rows,
            each.result_rows,
        )
        for each in found.stretches
        if exceeds(each, beyond)
    ]


@pytest.mark.parametrize("first", [10, 10.1, 10.24])
def test_half_an_hour_that_a_result_lacks_is_seen_wherever_it_begins(
    lake: Catalog, first: float
) -> None:
    found = losses(lake, EVERY_12_S, without(EVERY_12_S, first, first + 0.5))
    assert (found.production_rows, found.result_rows) == (7_200, 7_050)
    assert any(rows == 0 for _, _, _, rows in listed(found))
    assert listed(found)[0] == ((10, 10.5, 150, 0) if first == 10 else listed(found)[0])


def test_rows_that_half_an_hour_has_too_few_of_are_seen_in_a_day_that_has_nearly_all(
    lake: Catalog,
) -> None:
    found = losses(lake, EVERY_12_S, without(EVERY_12_S, 10, 10.5, one_in=4))
    assert found.result_rows > 0.99 * found.production_rows
    ((first, end, production, result),) = listed(found)
    assert (first < 10.5, end > 10, production - result) == (True, True, 38)


def test_duplicates_that_a_result_no_longer_has_are_no_loss_while_they_are_few(
    lake: Catalog,
) -> None:
    twice = [row for row in EVERY_12_S if row[0] % 200 == 0]
    found = losses(lake, [*EVERY_12_S, *twice], EVERY_12_S)
    assert listed(found) == []
    assert listed(found, "0")


def test_one_wrong_row_fewer_is_no_hole_in_a_table_of_few_rows(lake: Catalog) -> None:
    sparse = [(number, number * 8 * MINUTE_US) for number in range(180)]
    assert listed(losses(lake, sparse, sparse[1:])) == []


def test_hours_that_a_table_of_few_rows_loses_are_seen(lake: Catalog) -> None:
    sparse = [(number, number * 8 * MINUTE_US) for number in range(180)]
    assert listed(losses(lake, sparse, without(sparse, 9, 13)))


def test_rows_that_a_result_has_elsewhere_make_up_for_none(lake: Catalog) -> None:
    more = [(10_000 + number, 20 * HOUR_US) for number in range(500)]
    found = losses(lake, EVERY_12_S, [*without(EVERY_12_S, 3, 4), *more])
    assert listed(found) == [(3, 4, 300, 0)]


def test_a_gap_of_production_that_is_filled_makes_up_for_no_rows_beside_it(lake: Catalog) -> None:
    production = without(EVERY_12_S, 10, 12)
    assert listed(losses(lake, production, without(EVERY_12_S, 12, 12.5, one_in=2)))


def test_filling_a_gap_of_production_is_no_loss(lake: Catalog) -> None:
    assert listed(losses(lake, without(EVERY_12_S, 10.1, 12.4), EVERY_12_S), "0") == []


def test_a_result_of_other_times_is_not_taken_for_one_that_lost_rows(lake: Catalog) -> None:
    later = [(number, None if at is None else at + MINUTE_US // 2) for number, at in EVERY_12_S]
    assert listed(losses(lake, EVERY_12_S, later[:-3])) == []


@pytest.mark.parametrize(
    ("production", "result"),
    [([], EVERY_12_S), (EVERY_12_S, EVERY_12_S), ([(1, -1), (2, DAY_US), (3, None)], [(4, 0)])],
    ids=["nothing to remove", "all replaced", "rows of other days"],
)
def test_what_replaces_all_that_it_removes_loses_nothing(
    lake: Catalog, production: list[Row], result: list[Row]
) -> None:
    found = losses(lake, production, result)
    assert (found.stretches, found.further) == ((), 0)


def test_a_result_without_rows_loses_the_whole_window(lake: Catalog) -> None:
    assert listed(losses(lake, EVERY_12_S, [])) == [(0, 24, 7_200, 0)]


def test_many_holes_are_listed_as_the_greatest_and_the_number_of_others(lake: Catalog) -> None:
    holes = [row for row in EVERY_12_S if row[1] // (15 * MINUTE_US) % 3]
    found = losses(lake, EVERY_12_S, holes)
    assert (len(listed(found)), found.further) == (20, 12)


def test_files_within_a_stretch_are_counted_without_being_opened(lake: Catalog) -> None:
    table = make_table(lake)
    for hour in (3, 5):
        table.append(rows_of([(hour, hour * HOUR_US + at) for at in range(20)], "production"))
    (first, _) = sorted(_directory(table).glob("data/*.parquet"))
    stage(table, 0, [(3, 3 * HOUR_US)])
    first.unlink()
    found = count_losses(output(), RESULT, WINDOW)
    assert (found.problem, found.production_rows) == ("", 40)


def test_rows_that_were_deleted_from_production_are_no_loss(lake: Catalog) -> None:
    table = make_table(lake, format_version="2")
    table.append(rows_of(EVERY_12_S, "production"))
    (task,) = table.scan().plan_files()
    gone = range(4 * 300, 6 * 300)
    path = _directory(table) / "deletes.parquet"
    position_deletes(path, [(task.file.file_path, place) for place in gone])
    made = {"file_path": str(path), "file_size_in_bytes": path.stat().st_size}
    deletes = data_file(2, content=DataFileContent.POSITION_DELETES, record_count=len(gone), **made)
    table = commit_files(lake, table, 77, [], [deletes])
    stage(table, 0, without(EVERY_12_S, 4, 6))
    found = count_losses(output(), RESULT, WINDOW)
    assert (found.problem, found.stretches, found.production_rows) == ("", (), 6_600)


def test_what_can_not_be_read_is_not_taken_for_a_window_without_rows(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of(EVERY_12_S, "production"))
    (file,) = _directory(table).glob("data/*.parquet")
    stage(table, 0, EVERY_12_S)
    file.unlink()
    assert file.name in count_losses(output(), RESULT, WINDOW).problem


@pytest.mark.parametrize(
    ("kind", "unit", "of"),
    [(LongType(), "s", 1_000_000), (LongType(), "ms", 1_000), (DateType(), None, DAY_US)],
    ids=["seconds", "milliseconds", "dates"],
)
def test_times_in_other_units_are_counted_alike(
    lake: Catalog, kind: LongType | DateType, unit: str | None, of: int
) -> None:
    columns = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", kind))
    table = lake.create_table("raw.out", schema=columns)
    arrow = pa.date32() if isinstance(kind, DateType) else pa.int64()

    def rows(given: list[Row]) -> pa.Table:
        times = [(DAY_START_US + (at or 0)) // of for _, at in given]
        number = pa.int32() if isinstance(kind, DateType) else pa.int64()
        return pa.table({"id": [n for n, _ in given], "at": pa.array(times, number).cast(arrow)})

    wanted = output(timestamp_column="at", timestamp_unit=unit)
    table.append(rows(EVERY_12_S))
    stage_rows(table, 0, rows(without(EVERY_12_S, 10, 11)))
    found = count_losses(wanted, RESULT, WINDOW)
    assert (found.problem, found.production_rows, found.result_rows) == ("", 7_200, 6_900)
    assert bool(listed(found, "1"))
    if unit:
        assert listed(found) == [(10, 11, 300, 0)]


@pytest.mark.parametrize(
    ("mode", "counted"), [(PublishMode.REPLACE, True), (PublishMode.APPEND, False)]
)
def test_losses_are_counted_before_a_replace_and_not_after_it(
    lake: Catalog, mode: PublishMode, *, counted: bool
) -> None:
    table = make_table(lake)
    table.append(rows_of(EVERY_12_S, "production"))
    base = table.metadata.current_snapshot_id
    stage(table, 0, [(1, HOUR_US)])
    assert bool(_settled(mode)) is counted
    publish(output(mode), RESULT, WINDOW, base)
    assert _settled(mode) is None


def _settled(mode: PublishMode) -> WindowLosses | None:
    staged = StagedOutput(
        RESULT.namespace, RESULT.backfill, RESULT.uid, RESULT.plan_id, output(mode), None
    )
    return SettleJob((staged,), WINDOW).run(lambda progress: None).totals["summary"].losses


def _directory(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))
