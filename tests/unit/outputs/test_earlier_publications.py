"""What Backfills have published once is not appended again unless a person says that these are other
rows.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from backfill.api.errors import PublishConflict
from backfill.api.output import Output, Publish, PublishMode
from backfill.api.quantities import from_us
from backfill.api.spec import Window
from backfill.outputs.cleanup import discard
from backfill.outputs.earlier_publications import check_overlaps
from backfill.outputs.publication import publish
from backfill.outputs.result_names import Result
from backfill.outputs.undo_publication import Undo
from staged import (
    DAY_START_US,
    DAY_US,
    HOUR_US,
    RESULT,
    WINDOW,
    Row,
    content,
    make_table,
    output,
    rows_of,
    stage,
)

NEW = [(12, 0), (13, HOUR_US)]
AGAIN = replace(RESULT, uid="second", plan_id="another")
OTHER = replace(RESULT, backfill="morning", uid="third", plan_id="third", output="elsewhere")


def hours(first: float, end: float) -> Window:
    return Window(
        start=from_us(DAY_START_US + int(first * HOUR_US)),
        end=from_us(DAY_START_US + int(end * HOUR_US)),
    )


TOMORROW = hours(24, 48)
MORNING = hours(0, 6)


def appending(*allowed: str, **changes: object) -> Output:
    return output(publish=Publish(mode=PublishMode.APPEND, allow_overlap=allowed), **changes)


APPEND = appending()


def refused(window: Window = WINDOW, *allowed: str) -> list[str]:
    return [str(problem) for problem in check_overlaps([appending(*allowed)], window).refused]


def test_a_window_that_another_backfill_has_published_is_not_appended_to(lake: Catalog) -> None:
    table = _table(lake)
    stage(table, 0, NEW)
    replacing = publish(output(), RESULT, WINDOW, table.metadata.current_snapshot_id)
    (problem,) = refused(MORNING)
    assert problem.startswith(
        "spec.outputs[0].publish: lake.raw.out already has rows of this window, from Backfill"
        f" streaming/rmi (snapshot {replacing.snapshot_id}: 2 rows of [2021-07-11T00:00:00Z,"
        " 2021-07-12T00:00:00Z), published at "
    )
    assert problem.endswith("if the result has other rows, add rmi to publish.allowOverlap")
    assert refused(TOMORROW) == []
    assert refused(hours(23.5, 48))
    its_own = check_overlaps([appending()], MORNING, ("streaming", "rmi"))
    assert (its_own.refused, its_own.warnings) == ([], ()), "its plan can be shown again"


@pytest.mark.parametrize("name", ["rmi", "morning"])
def test_only_the_backfill_that_is_named_may_be_added_to(lake: Catalog, name: str) -> None:
    _published(_table(lake))
    assert bool(refused(WINDOW, name)) is (name != "rmi")
    (warning,) = check_overlaps([appending("rmi")], WINDOW).warnings
    assert warning.startswith(
        "spec.outputs[0].publish: lake.raw.out already has rows of this window, from Backfill"
        " streaming/rmi"
    )
    assert warning.endswith("as allowOverlap permits, the rows are added to these")


@pytest.mark.parametrize(
    ("mode", "then"),
    [
        (PublishMode.REPLACE, "; they are replaced"),
        (PublishMode.UPSERT, "; those with the keys of the result are replaced"),
    ],
)
def test_whoever_replaces_what_another_backfill_has_published_is_warned(
    lake: Catalog, mode: PublishMode, then: str
) -> None:
    _published(_table(lake))
    found = check_overlaps([output(mode)], MORNING)
    assert found.refused == []
    assert [warning.endswith(then) for warning in found.warnings] == [True]
    assert check_overlaps([output(mode)], TOMORROW).warnings == ()


@pytest.mark.parametrize(
    ("windows", "left"),
    [
        ([(0, 24)], []),
        ([(0, 12), (12, 24)], []),
        ([(3, 8), (-2, 4)], []),
        ([(0, 3)], ["rmi"]),
        ([(6, 24)], ["rmi"]),
    ],
)
def test_an_append_that_was_replaced_since_then_is_in_nobodys_way(
    lake: Catalog, windows: list[tuple[int, int]], left: list[str]
) -> None:
    table = _table(lake)
    _published(table)
    for number, (first, end) in enumerate(windows):
        later = replace(OTHER, backfill=f"later-{number}", uid=f"later-{number}")
        _publish(table, later, output(), hours(first, end), [(50 + number, first * HOUR_US)])
    found = check_overlaps([appending(*(f"later-{number}" for number in range(9)))], MORNING)
    assert [name for name in ("rmi",) if f"streaming/{name}" in str(found.refused)] == left


def test_a_replace_that_was_undone_has_replaced_nothing(lake: Catalog) -> None:
    table = _table(lake)
    _published(table)
    snapshot = _publish(table, OTHER, output(), WINDOW, [(50, 0)])
    assert refused(MORNING, "rmi")
    assert not refused(MORNING, "morning")
    Undo(output(), OTHER, WINDOW, snapshot).run()
    assert refused(MORNING, "morning")
    assert not refused(MORNING, "rmi")


def test_a_replace_by_another_column_leaves_rows_of_the_window(lake: Catalog) -> None:
    table = make_table(lake)
    stage(table, 0, NEW)
    publish(appending(timestamp_column=None), RESULT, WINDOW, None)
    _publish(table, OTHER, output(), WINDOW, [(50, 0)])
    assert "streaming/rmi" in str(refused(MORNING, "morning"))


def test_a_compaction_in_between_hides_nothing(lake: Catalog) -> None:
    table = _table(lake)
    _published(table)
    table.refresh().overwrite(table.scan().to_arrow())
    assert refused(MORNING)


def test_two_backfills_that_began_at_once_do_not_append_the_same_time(lake: Catalog) -> None:
    table = _table(lake)
    base = table.metadata.current_snapshot_id
    _published(table)
    stage(table.refresh(), 0, [(50, HOUR_US)], result=OTHER)
    no_column = {"timestamp_column": None}
    for wanted in (APPEND, appending(**no_column), appending("nobody", **no_column)):
        with pytest.raises(PublishConflict, match="Backfill streaming/rmi"):
            publish(wanted, OTHER, MORNING, base)
    publish(appending("rmi"), OTHER, MORNING, base)
    assert len(content(table)) == 4


def test_the_same_backfill_may_append_another_window(lake: Catalog) -> None:
    _published(_table(lake))
    assert not refused(TOMORROW)
    assert refused(Window(start=WINDOW.start, end=TOMORROW.end))


def test_rows_that_a_rollback_took_away_may_be_appended_again(lake: Catalog) -> None:
    table = _table(lake)
    before = table.metadata.current_snapshot_id
    assert before is not None
    _published(table)
    table.refresh().manage_snapshots().set_current_snapshot(snapshot_id=before).commit()
    assert refused() == []


def test_rows_that_were_undone_may_be_appended_again(lake: Catalog) -> None:
    table = _table(lake)
    before = content(table)
    Undo(APPEND, RESULT, WINDOW, _published(table)).run()
    assert refused() == []
    assert content(table) == before
    base = table.refresh().metadata.current_snapshot_id
    discard(APPEND.table, [RESULT], [base])
    stage(table.refresh(), 0, NEW, result=AGAIN)
    publish(APPEND, AGAIN, WINDOW, base)
    assert len(content(table)) == len(before) + len(NEW)
    assert refused()


def test_a_publication_without_rows_doubles_nothing(lake: Catalog) -> None:
    table = _table(lake)
    stage(table, 0, [], outside=2)
    publish(APPEND, RESULT, WINDOW, table.metadata.current_snapshot_id)
    assert refused() == []


def test_rows_that_a_replace_brought_are_not_appended_either(lake: Catalog) -> None:
    table = _table(lake)
    stage(table, 0, NEW)
    publish(output(), RESULT, WINDOW, table.metadata.current_snapshot_id)
    assert refused()


def test_a_history_that_can_not_tell_says_so(lake: Catalog) -> None:
    table = _table(lake)
    _published(table)
    table.refresh().append(rows_of([(30, 3 * DAY_US)], "production"))
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    found = check_overlaps([APPEND], WINDOW)
    assert found.refused == []
    (warning,) = found.warnings
    assert warning.startswith("spec.outputs[0].publish: the history of lake.raw.out begins at ")
    future = Window(
        start=datetime.now(UTC) + timedelta(days=1), end=datetime.now(UTC) + timedelta(days=2)
    )
    assert check_overlaps([APPEND], future).warnings == (), (
        "nothing of it can have been there to be published"
    )


def test_the_same_plan_under_two_names_is_published_once_though_no_column_tells_the_window(
    lake: Catalog,
) -> None:
    table, no_column = make_table(lake), appending(timestamp_column=None)
    twin = replace(RESULT, backfill="twin", uid="second")
    for result in (RESULT, twin):
        stage(table, 0, NEW, result=result)
    publish(no_column, RESULT, WINDOW, None)
    with pytest.raises(
        PublishConflict,
        match=r"were added to table .* after the backfill began: Backfill streaming/rmi",
    ):
        publish(no_column, twin, WINDOW, None)
    assert len(content(table)) == 2


def test_a_second_append_that_is_meant_is_made(lake: Catalog) -> None:
    table = _table(lake)
    _published(table)
    discard(APPEND.table, [RESULT], [None])
    stage(table.refresh(), 0, NEW, result=AGAIN)
    publish(APPEND, AGAIN, WINDOW, table.metadata.current_snapshot_id)
    assert len(content(table)) == 5


def _table(lake: Catalog) -> Table:
    table = make_table(lake)
    table.append(rows_of([(1, -HOUR_US)], "production"))
    return table


def _published(table: Table) -> int:
    base = table.metadata.current_snapshot_id
    stage(table, 0, NEW)
    return publish(APPEND, RESULT, WINDOW, base).snapshot_id


def _publish(table: Table, result: Result, wanted: Output, window: Window, rows: list[Row]) -> int:
    base = table.refresh().metadata.current_snapshot_id
    stage(table, 0, rows, result=result)
    return publish(wanted, result, window, base).snapshot_id
