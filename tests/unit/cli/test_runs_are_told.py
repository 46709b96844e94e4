"""What a run without a cluster tells of a catalog that cannot be opened, and of others who write
the same rows.
"""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from backfill.api.conditions import ConditionType, Reason, find_condition
from local_runs import EVENTS, START, LocalRuns
from waiting import eventually

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
        "january: warning: Backfill other/january, which is in progress, also writes lake.raw.counts"
        in second.err
    )
    branches = [ended.document["outputs"][0]["branch"] for ended in (first, second)]
    assert branches == ["backfill/other/january", "backfill/january"]
    assert set(branches) <= set(lake.load_table("raw.counts").refs())


def _of_stops(lake: Catalog, **source: Any) -> dict[str, Any]:
    """A Backfill that replaces six hours by a table that ingestion has filled for two of them."""
    lake.create_table("raw.counts", schema=EVENTS)
    stops = lake.create_table("raw.stops", schema=EVENTS)
    for minutes in range(0, 120, 10):
        times = [START + timedelta(minutes=minutes, seconds=each) for each in range(600)]
        rows = pa.table({"id": range(600), "at": times}, schema=EVENTS)
        stops.append(rows, snapshot_properties={"our.watermark": "2024-01-01T02:00:00Z"})
    found = {"name": "stops", "table": "lake.raw.stops", "timestampColumn": "at"}
    stops = {**found, "watermark": {"property": "our.watermark"}, **source}
    publish = {"mode": "Replace", "approval": "Automatic"}
    return {"sources": [stops], "outputs": [{**OUTPUT, "publish": publish}]}


def test_rows_are_not_replaced_by_what_an_incomplete_table_gives(
    runs: LocalRuns, lake: Catalog
) -> None:
    runs.write(**_of_stops(lake))
    missing = (
        "lake.raw.stops lacks rows that are needed for publish mode Replace: ingestion"
        " had written everything up to 2024-01-01T02:00:00Z (our.watermark), but the input range"
        " ends at 2024-01-01T06:00:00Z"
    )
    planned = runs.command("plan", str(runs.file))
    assert planned.status == 2
    assert "input of stops is incomplete" in planned.out
    assert missing in planned.err
    ended = runs.run()
    assert ended.status == 2
    assert f": spec.sources[0].allowIncomplete: is false, but {missing}" in ended.err
    assert not runs.store.attempts.exists() or not list(runs.store.attempts.iterdir())
    assert "InputComplete=False" in runs.command("status", "january").out


def test_rows_are_replaced_by_an_incomplete_table_where_that_is_allowed(
    runs: LocalRuns, lake: Catalog
) -> None:
    runs.write(**_of_stops(lake, allowIncomplete=True))
    ended = runs.run("--output", "json")
    (condition,) = [
        each for each in ended.document["conditions"] if each["type"] == "InputComplete"
    ]
    assert condition["reason"] == "IncompleteInputAllowed"
    assert "source stops: ingestion had written everything up to" in condition["message"]
    assert list(runs.store.attempts.iterdir())


def test_late_rows_are_waited_for_and_then_read(runs: LocalRuns, lake: Catalog) -> None:
    runs.write(**_of_stops(lake), waitForInput="10m")
    process = runs.start("run", str(runs.file), "--output", "json")

    def waits() -> bool:
        resource = runs.store.load()
        return resource is not None and resource.status.input_wait is not None

    eventually(waits, "no rows are waited for")
    planned = find_condition(runs.backfill.status.conditions, ConditionType.PLANNED)
    assert planned is not None
    assert planned.reason == Reason.WAITING_FOR_INPUT
    assert "lake.raw.stops: ingestion had written everything up to 2024-01-01T02" in planned.message
    times = [START + timedelta(hours=2, seconds=each) for each in range(4 * 3600)]
    late = pa.table({"id": range(len(times)), "at": times}, schema=EVENTS)
    through = {"our.watermark": "2024-01-01T06:00:00Z"}
    lake.load_table("raw.stops").append(late, snapshot_properties=through)
    ended = runs.end(process)
    assert ended.status == 0, ended.err
    assert ended.document["rowsRead"] == 6 * 3600
    (condition,) = [
        each for each in ended.document["conditions"] if each["type"] == "InputComplete"
    ]
    assert condition["status"] == "True"


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
