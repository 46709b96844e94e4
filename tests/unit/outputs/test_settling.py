"""After the last step: every batch was staged, also those without rows, so a result of which nothing is there is lost."""

import pytest
from pyiceberg.catalog import Catalog

from backfill.api.backfill import PublishMode
from backfill.api.errors import ResultLost
from backfill.controller.jobs import SettleJob, StagedOutput, Totals
from backfill.outputs.publish import publish
from staged import RESULT, WINDOW, make_table, output, stage

STAGED = StagedOutput(RESULT.namespace, RESULT.backfill, RESULT.uid, RESULT.plan_id, output(PublishMode.APPEND), None)


def settled() -> Totals:
    return SettleJob((STAGED,)).run(lambda progress: None).totals["summary"]


def test_a_result_without_rows_is_one(lake: Catalog) -> None:
    stage(make_table(lake), 0, [], outside=9)
    assert settled() == Totals("backfill/streaming/rmi", rows=0, rows_outside_window=9)


def test_a_result_whose_branch_was_dropped_is_not_taken_for_an_empty_one(lake: Catalog) -> None:
    table = make_table(lake)
    stage(table, 0, [(1, 0)])
    table.manage_snapshots().remove_branch(RESULT.branch).commit()
    with pytest.raises(ResultLost, match="it was dropped, or it has expired"):
        settled()


def test_a_result_that_is_published_needs_no_branch(lake: Catalog) -> None:
    table = make_table(lake)
    stage(table, 0, [(1, 0)])
    publish(output(PublishMode.APPEND), RESULT, WINDOW, None)
    table.refresh().manage_snapshots().remove_branch(RESULT.branch).commit()
    assert settled() == Totals(None, rows=0, rows_outside_window=0)
