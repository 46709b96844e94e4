"""``approve``, ``reject`` and ``undo`` on this machine: what they leave in status and tables."""

import getpass

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from backfill.api.status import Verdict
from local_runs import EVENTS, START, LocalRuns

OUTPUT = {
    "name": "counts",
    "table": "lake.raw.counts",
    "timestampColumn": "at",
    "publish": {"mode": "Replace"},
}


@pytest.fixture
def waiting(runs: LocalRuns, lake: Catalog) -> LocalRuns:
    """A Replace without validate, which waits by default."""
    lake.create_table("raw.counts", schema=EVENTS)
    runs.write(outputs=[OUTPUT])
    ended = runs.run()
    assert ended.status == 3, ended.err
    assert "publish with: backfill approve january" in ended.out
    assert "or reject the result with: backfill reject january" in ended.out
    return runs


def test_an_approval_publishes_and_an_undo_takes_it_out_again(
    waiting: LocalRuns, lake: Catalog
) -> None:
    approved = waiting.command("approve", "january", "--reason", "looks right")
    assert approved.status == 0, approved.err
    decision = waiting.backfill.status.decision
    assert decision is not None
    assert (decision.decision, decision.by, decision.reason) == (
        Verdict.APPROVE,
        getpass.getuser(),
        "looks right",
    )
    published = lake.load_table("raw.counts").metadata.current_snapshot_id
    undone = waiting.command("undo", "january", "--reason", "wrong rates")
    assert undone.status == 0, undone.err
    assert f"january: undone by {getpass.getuser()}: wrong rates; " in undone.out
    table = lake.load_table("raw.counts")
    assert table.metadata.snapshot_by_id(table.metadata.current_snapshot_id).summary[
        "backfill.undoes"
    ] == str(published)
    (output,) = waiting.backfill.status.outputs
    assert output.undo_snapshot_id == table.metadata.current_snapshot_id
    again = waiting.command("undo", "january")
    assert again.status == 0
    assert "already undone" in again.out
    shown = waiting.command("status", "january")
    assert "undo requested" in shown.out
    assert waiting.run().status == 1, "what was undone is not published again"


def test_a_rejection_ends_the_backfill(waiting: LocalRuns, lake: Catalog) -> None:
    assert waiting.command("reject", "january").status == 2, "a rejection needs a reason"
    for reason, words in ((" ", "--reason: is empty"), ("x" * 2000, "--reason: is 2,000 char")):
        refused = waiting.command("reject", "january", "--reason", reason)
        assert (refused.status, words in refused.err) == (2, True)
    rejected = waiting.command("reject", "january", "--reason", "a gap at noon")
    assert rejected.status == 0, rejected.err
    assert f"january: rejected by {getpass.getuser()}: a gap at noon; the result" in rejected.out
    assert lake.load_table("raw.counts").metadata.current_snapshot_id is None
    assert waiting.run().status == 1
    approved = waiting.command("approve", "january")
    assert approved.status == 2
    assert "was already rejected by" in approved.err
    assert waiting.command("undo", "january").status == 2
    resumed = waiting.command("resume", "january")
    assert resumed.status == 2
    assert "january was rejected by" in resumed.err
    assert "a rejection is final" in resumed.err


def test_an_undo_says_what_is_in_the_way(waiting: LocalRuns, lake: Catalog) -> None:
    assert waiting.command("approve", "january").status == 0
    table = lake.load_table("raw.counts")
    table.append(pa.table({"id": [7], "at": [START]}, schema=EVENTS))
    refused = waiting.command("undo", "january")
    assert refused.status == 1
    written = table.refresh().metadata.current_snapshot_id
    assert "error: not undone: counts: lake.raw.counts was changed in the window" in refused.err
    assert f"snapshot {written} (append at" in refused.err
    table.delete("id = 7")
    assert waiting.run().status == 0, "what is published has succeeded as before"
    still = waiting.command("undo", "january")
    assert still.status == 1, "a deletion in the window is in the way as well"
    assert waiting.backfill.status.undo is not None
    assert waiting.backfill.status.undo.number == 2
