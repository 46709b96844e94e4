"""What a table was given once is not appended again unless a person wants it, however often its
Backfill is made anew.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from backfill.api.errors import Problem, PublishConflict
from backfill.api.output import PublishMode
from backfill.api.quantities import from_us
from backfill.api.spec import Window
from backfill.outputs.cleanup import discard
from backfill.outputs.publication import publish
from backfill.outputs.repeated_appends import doubled_appends
from backfill.outputs.result_names import Result
from backfill.outputs.undo_publication import Undo
from staged import (
    DAY_START_US,
    DAY_US,
    HOUR_US,
    RESULT,
    WINDOW,
    content,
    make_table,
    output,
    rows_of,
    stage,
)

NEW = [(12, 0), (13, HOUR_US)]
APPEND = output(PublishMode.APPEND)
AGAIN = replace(RESULT, uid="second", plan_id="another")
TOMORROW = Window(start=WINDOW.end, end=from_us(DAY_START_US + 2 * DAY_US))


def doubled(result: Result, window: Window = WINDOW) -> list[Problem]:
    found, warnings = doubled_appends([APPEND], [result], window)
    assert warnings == ()
    return list(found.values())


def test_a_backfill_made_again_does_not_append_everything_twice(lake: Catalog) -> None:
    snapshot = _published(_table(lake))
    (problem,) = doubled(AGAIN)
    start = (
        f"spec.outputs[0].publish: lake.raw.out already has these rows, from snapshot {snapshot}"
        " (2 rows at "
    )
    assert str(problem).startswith(start)
    assert (
        "Backfill streaming/rmi, plan 0123456789abcdef); appending would duplicate them; publish"
        " with Replace" in str(problem)
    )


@pytest.mark.parametrize("same_plan", [True, False])
def test_another_name_is_another_backfill_unless_its_plan_is_the_same(
    lake: Catalog, *, same_plan: bool
) -> None:
    _published(_table(lake))
    other = replace(
        RESULT, backfill="renamed", uid="second", plan_id=RESULT.plan_id if same_plan else "another"
    )
    assert bool(doubled(other)) is same_plan


@pytest.mark.parametrize(
    "other", [replace(AGAIN, output="elsewhere"), replace(AGAIN, namespace="another-team")]
)
def test_other_rows_may_be_appended(lake: Catalog, other: Result) -> None:
    _published(_table(lake))
    assert doubled(other) == []


def test_the_same_backfill_may_append_another_window(lake: Catalog) -> None:
    _published(_table(lake))
    assert doubled(AGAIN, TOMORROW) == []
    assert doubled(AGAIN, Window(start=WINDOW.start, end=TOMORROW.end))


def test_rows_that_a_rollback_took_away_may_be_appended_again(lake: Catalog) -> None:
    table = _table(lake)
    before = table.metadata.current_snapshot_id
    assert before is not None
    _published(table)
    table.refresh().manage_snapshots().set_current_snapshot(snapshot_id=before).commit()
    assert doubled(AGAIN) == []


def test_rows_that_were_undone_may_be_appended_again(lake: Catalog) -> None:
    table = _table(lake)
    before = content(table)
    Undo(APPEND, RESULT, WINDOW, _published(table)).run()
    assert doubled(AGAIN) == []
    assert content(table) == before
    base = table.refresh().metadata.current_snapshot_id
    discard(APPEND.table, [RESULT], [base])
    stage(table.refresh(), 0, NEW, result=AGAIN)
    publish(APPEND, AGAIN, WINDOW, base)
    assert len(content(table)) == len(before) + len(NEW)
    assert doubled(AGAIN)


def test_a_publication_without_rows_doubles_nothing(lake: Catalog) -> None:
    table = _table(lake)
    stage(table, 0, [], outside=2)
    publish(APPEND, RESULT, WINDOW, table.metadata.current_snapshot_id)
    assert doubled(AGAIN) == []


def test_rows_that_a_replace_brought_are_not_appended_either(lake: Catalog) -> None:
    table = _table(lake)
    stage(table, 0, NEW)
    publish(output(), RESULT, WINDOW, table.metadata.current_snapshot_id)
    assert doubled(AGAIN)
    assert doubled_appends([output()], [AGAIN], WINDOW) == ({}, ())


def test_a_history_that_can_not_tell_says_so(lake: Catalog) -> None:
    table = _table(lake)
    _published(table)
    table.refresh().append(rows_of([(30, 3 * DAY_US)], "production"))
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    found, (warning,) = doubled_appends([APPEND], [AGAIN], WINDOW)
    assert found == {}
    assert warning.startswith("spec.outputs[0].publish: the history of lake.raw.out begins at ")
    future = Window(
        start=datetime.now(UTC) + timedelta(days=1), end=datetime.now(UTC) + timedelta(days=2)
    )
    assert doubled_appends([APPEND], [AGAIN], future) == (
        {},
        (),
    ), "nothing of it can have been there to be published"


def test_the_same_plan_under_two_names_is_published_once_though_no_column_tells_the_window(
    lake: Catalog,
) -> None:
    table, no_column = make_table(lake), output(PublishMode.APPEND, timestamp_column=None)
    twin = replace(RESULT, backfill="twin", uid="second")
    for result in (RESULT, twin):
        stage(table, 0, NEW, result=result)
    publish(no_column, RESULT, WINDOW, None)
    with pytest.raises(
        PublishConflict, match=r"were added to table .* after the backfill began: snapshot"
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
