"""After the last step: every batch was staged, also those without rows, so a result of which
nothing is there is lost. And in the end: what can be removed is, and what cannot is named.
"""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from backfill.api.errors import BackfillError, ResultLost
from backfill.api.output import PublishMode
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.controller.jobs.kinds.settle import SettleJob, Totals
from backfill.controller.jobs.staged_outputs import StagedOutput
from backfill.outputs.publication import publish
from backfill.planning.workspace import Workspace
from staged import COLUMNS, HOUR_US, RESULT, WINDOW, make_table, output, rows_of, stage
from table_jobs import clicks_spec

STAGED = StagedOutput(
    RESULT.namespace, RESULT.backfill, RESULT.uid, RESULT.plan_id, output(PublishMode.APPEND), None
)


def settled() -> Totals:
    return SettleJob((STAGED,), WINDOW).run(lambda progress: None).totals["summary"]


def test_a_result_without_rows_is_one(lake: Catalog) -> None:
    table = make_table(lake)
    stage(table, 0, [], outside=9)
    branch = table.refresh().metadata.refs[RESULT.branch]
    assert settled() == Totals(RESULT.branch, 0, 9, branch.snapshot_id)


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


def test_a_result_is_not_lost_over_files_that_cannot_be_removed(lake: Catalog) -> None:
    table = make_table(lake)
    stage(table, 0, [(1, 0)])
    table.append(rows_of([(2, HOUR_US)], "production"))
    current = table.current_snapshot()
    assert current is not None
    Path(current.manifest_list).unlink()
    settled = SettleJob((STAGED,), WINDOW).run(lambda progress: None)
    assert settled.totals["summary"].rows == 1
    assert (
        f"{Path(current.manifest_list).name} of snapshot {current.snapshot_id} cannot be read"
        in settled.left_behind
    )


def test_a_table_that_cannot_be_read_keeps_nothing_else_from_being_removed(
    lake: Catalog, tmp_path: Path
) -> None:
    table, other = make_table(lake), lake.create_table("raw.other", schema=COLUMNS)
    stage(table, 0, [(1, 0)])
    stage(other, 0, [(1, 0)])
    table.append(rows_of([(2, HOUR_US)], "production"))
    current = table.current_snapshot()
    assert current is not None
    Path(current.manifest_list).unlink()
    workspace = Workspace.below(str(tmp_path), "", RESULT.namespace, RESULT.backfill)
    checkpoint = Path(workspace.uri) / "checkpoints/query/offsets/0"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    second = StagedOutput(
        RESULT.namespace,
        RESULT.backfill,
        RESULT.uid,
        RESULT.plan_id,
        output(table="lake.raw.other"),
        None,
    )
    with pytest.raises(
        BackfillError,
        match=r"that table raw\.out uses are unknown, .* No files were removed below /",
    ):
        DiscardJob(
            RESULT.namespace, RESULT.backfill, clicks_spec(), (STAGED, second), workspace
        ).run(lambda progress: None)
    assert RESULT.branch in table.refresh().metadata.refs
    assert RESULT.branch not in other.refresh().metadata.refs
    assert not checkpoint.exists()
