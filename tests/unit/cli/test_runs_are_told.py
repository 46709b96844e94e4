"""What a run without a cluster tells of a catalog that cannot be opened, and of others who write
the same rows.
"""

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from local_runs import EVENTS, START, LocalRuns

OUTPUT = {
    "name": "counts",
    "table": "lake.raw.counts",
    "timestampColumn": "at",
    "publish": {"mode": "Append", "approval": "Manual"},
}


def test_a_wrong_catalog_property_is_one_mistake(
    runs: LocalRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "resst")
    ended = runs.run()
    assert ended.status == 2
    (told,) = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    assert told.startswith(
        'error: catalog lake cannot be opened: its property type is "resst"; did you mean rest?'
    )
    assert "PYICEBERG_CATALOG__LAKE__TYPE in the environment" in told


def test_namesakes_in_two_namespaces_have_branches_of_their_own_and_the_second_one_hears_of_the_first(
    runs: LocalRuns, lake: Catalog
) -> None:
    lake.create_table("raw.counts", schema=EVENTS)
    runs.write(outputs=[OUTPUT])
    first = runs.run("-n", "other", "--output", "json")
    assert first.status == 3, first.err
    assert "warning" not in first.err
    second = runs.run("--output", "json")
    assert second.status == 3, second.err
    assert (
        "january: warning: lake.raw.counts is also written by Backfill other/january, which has not"
        " ended" in second.err
    )
    branches = [ended.document["outputs"][0]["branch"] for ended in (first, second)]
    assert branches == ["backfill/other/january", "backfill/january"]
    assert set(branches) <= set(lake.load_table("raw.counts").refs())


def test_a_result_whose_window_was_changed_meanwhile_asks_for_a_new_start(
    runs: LocalRuns, lake: Catalog
) -> None:
    table = lake.create_table("raw.counts", schema=EVENTS)
    runs.write(outputs=[OUTPUT])
    assert runs.run().status == 3
    table.refresh().append(pa.table({"id": [7], "at": [START]}, schema=EVENTS))
    ended = runs.command("approve", "january")
    assert ended.status == 1
    assert "was changed in the window since the backfill began" in ended.err
    assert (
        ended.err.splitlines()[-1]
        == f"start over with: backfill cancel january --state-dir {runs.state}"
    )


def test_rows_whose_replacement_is_still_open_are_deleted_only_when_a_person_says_so(
    runs: LocalRuns, lake: Catalog
) -> None:
    lake.create_table("raw.counts", schema=EVENTS)
    runs.write(outputs=[OUTPUT | {"publish": {"mode": "Replace"}}])
    first = runs.run("--output", "json", open_at_end=3)
    assert first.status == 3, first.err
    (output,) = first.document["outputs"]
    assert (output["openAtEnd"], output["snapshotId"]) == (3, None)
    assert "publishing deletes the rows of lake.raw.counts" in first.err
    assert "3 results of the window that were still open" in first.err
    assert runs.run().status == 3, "running it again is no approval"
    approved = runs.command("approve", "january", "--output", "json")
    assert approved.status == 0, approved.err
    assert approved.document["outputs"][0]["snapshotId"] is not None
