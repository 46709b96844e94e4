"""State that goes on with live traffic, after a run on this machine."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from local_runs import EVENTS, START, STEPS, LocalRuns

OFFSETS = {"partitionColumn": "id", "offsetColumn": "id"}


def write(runs: LocalRuns, kafka: object = OFFSETS, **hand_off: object) -> None:
    sources = [
        {
            "name": name,
            "table": f"lake.raw.{name}",
            "timestampColumn": "at",
            "kafka": kafka,
            "live": {"kafka": {"topic": name}},
        }
        for name in ("clicks", "views")
    ]
    window = {"start": "2024-01-01T00:00:00Z", "end": "Live"}
    runs.write(window=window, sources=sources, handOff={"to": "Live", **hand_off})


def test_a_prepared_run_ends_with_where_the_state_is(runs: LocalRuns) -> None:
    write(runs)
    ended = runs.run("--output", "json")
    assert ended.status == 0, ended.err
    runs.assert_every_step_was_committed_once_and_in_order()
    assert ended.document["handOff"] == {
        "historyEnd": "2024-01-01T05:59:00.000001Z",
        "sources": [],
        "queries": [
            {
                "name": "query",
                "checkpointLocation": "/live/query",
                "batch": 12,
                "statePartitions": 0,
            }
        ],
        "seconds": 0.5,
    }
    conditions = {each["type"]: each for each in ended.document["conditions"]}
    assert conditions["HandedOver"]["reason"] == "Prepared"
    assert "query in /live/query" in conditions["HandedOver"]["message"]
    assert conditions["InputComplete"]["status"] == "True"
    shown = runs.command("status", "january")
    assert "/live/query, after batch 12" in " ".join(shown.out.split())


def test_history_goes_on_with_rows_that_come_while_it_is_read(
    runs: LocalRuns, lake: Catalog
) -> None:
    write(runs, maxDistance="1h")
    offsets = {str(partition): partition + 1 for partition in range(60)} | {"60": 60, "61": 61}
    begun = runs.start("run", str(runs.file), step_seconds=0.1, grace_seconds=0.2, offsets=offsets)
    runs.wait_for_steps(3)
    runs.kill(begun)
    now = datetime.now(UTC)
    for number, moment in enumerate((START + timedelta(hours=7), now)):
        row = pa.table({"id": [60 + number], "at": [moment]}, schema=EVENTS)
        lake.load_table("raw.clicks").append(row)

    ended = runs.run("--output", "json", offsets=offsets)

    assert ended.status == 0, ended.err
    status = runs.backfill.status
    assert status.hand_off is not None
    assert status.hand_off.growing is None
    assert len(status.hand_off.extensions or ()) == 1
    assert status.hand_off.history_end == now + timedelta(microseconds=1)
    assert "which is within maxDistance" in (status.hand_off.complete_because or "")
    assert status.newest_plan_id != status.plan_id
    assert status.progress.steps == STEPS + 2
    assert [each["step"] for each in runs.events("step")] == list(range(STEPS + 3))
    assert not runs.events("two drivers")
    assert [each.outcome for each in status.attempts[-2:]] == ["Stopped", "Succeeded"]


def test_a_run_that_hands_nothing_over_has_failed(runs: LocalRuns) -> None:
    write(runs)
    ended = runs.run(keeps_state=1)
    assert ended.status == 1
    assert "its driver ended without handing over its state" in ended.err


def test_a_run_warns_of_records_that_kafka_may_remove_before_history_is_read(
    runs: LocalRuns,
) -> None:
    write(runs)
    ended = runs.run("--output", "json", kept_until="2024-01-03T00:00:00Z", step_seconds=0.3)
    assert ended.status == 0, ended.err
    assert (
        "january: warning: after 2024-01-03T00:00:00Z, Kafka may remove records that follow"
        " history, but reading history is expected to take longer" in ended.err
    )


def test_a_run_warns_of_records_that_are_read_twice(runs: LocalRuns) -> None:
    write(runs, kafka={}, startingTimestampMargin="30m")
    ended = runs.run("--output", "json", starting_timestamp="2024-01-01T05:29:00Z")
    assert ended.status == 0, ended.err
    for warning in (
        "january: warning: sources clicks, views: live traffic continues with records up to"
        " 30m older than the newest row of each",
        "january: warning: live traffic continues with records from 2024-01-01T05:29:00Z, some of"
        " which are already part of history, and these queries are not known to drop duplicates:"
        " query",
    ):
        assert ended.err.count(warning) == 1


def test_a_source_without_offsets_needs_to_know_how_far_back_live_traffic_begins(
    runs: LocalRuns,
) -> None:
    write(runs, kafka={})
    ended = runs.run()
    assert ended.status == 2
    assert "set handOff.startingTimestampMargin to more than" in ended.err


def test_nothing_can_be_deployed_without_a_cluster(runs: LocalRuns) -> None:
    write(runs, start="Deploy")
    ended = runs.run()
    assert ended.status == 2
    assert ended.err.partition(": spec.")[2] == (
        'handOff.start: "Deploy" creates a SparkApplication, which requires a'
        " cluster; use Prepare, and start the application yourself once its checkpoints are"
        " written\n"
    )
    assert not runs.state.exists()


@pytest.mark.parametrize("start", ["Prepare", "Deploy"])
def test_a_dry_run_says_that_live_traffic_goes_on(runs: LocalRuns, start: str) -> None:
    write(runs, start=start)
    shown = runs.command("plan", str(runs.file))
    assert shown.status == 0, shown.err
    text = " ".join(shown.out.split())
    assert "reads 2024-01-01 00:00 to 2024-01-01 05:59 UTC, where live traffic continues" in text
