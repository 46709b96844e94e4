"""Where live traffic goes on: exactly after the last row of history in each Kafka partition."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from backfill.api.errors import InvalidPlanInput
from backfill.api.spec import BackfillSpec
from backfill.planning.plan import plan_directory
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace
from backfill.runtime.hand_off.kafka_start_offsets import (
    Held,
    Retention,
    check_held,
    check_reaches_back,
    check_times_fit,
    kept_until_us,
    offsets_after_history,
    still_held,
    with_empty_partitions,
)

START = datetime(2021, 7, 11, tzinfo=UTC)
FIELD = "spec.sources[0].live.kafka.topic"
ROWS = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("kafka", pa.struct([("partition", pa.int32()), ("offset", pa.int64())])),
    ]
)


class Events:
    """A table of events with the offsets of their records in nested columns, and plans that read it
    from ``START`` on.
    """

    def __init__(self, directory: Path, catalog: Catalog):
        self._directory = directory
        self.kept = Workspace(str(directory / "kept"))
        self._table = catalog.create_table("raw.events", schema=ROWS)

    def append(self, *rows: tuple[int, int | None, int | None]) -> None:
        """A file with rows of a minute, a partition and an offset."""
        values = [
            {
                "at": START + timedelta(minutes=minute),
                "kafka": {"partition": partition, "offset": offset},
            }
            for minute, partition, offset in rows
        ]
        self._table.append(pa.Table.from_pylist(values, schema=ROWS))

    def next_offsets(self, **ordering: Any) -> dict[int, int]:
        spec = BackfillSpec.model_validate(
            {
                "applicationRef": {"name": "app"},
                "window": {"start": START, "end": "Live"},
                "sources": [
                    {
                        "name": "events",
                        "table": "lake.raw.events",
                        "timestampColumn": "at",
                        "kafka": {
                            "partitionColumn": "kafka.partition",
                            "offsetColumn": "kafka.offset",
                        },
                        "live": {"kafka": {"topic": "events"}},
                    }
                ],
                "handOff": {"to": "Live"},
                "ordering": ordering,
                "maxMisalignment": "10m",
            }
        )
        workspace = Workspace(str(self._directory / "workspace"))
        header = make_plan(spec, workspace, parallelism=2)
        plan = plan_directory(workspace, header.plan_id)
        return dict(offsets_after_history(plan, "events", self.kept))


@pytest.fixture
def events(tmp_path: Path, lake: Catalog) -> Events:
    return Events(tmp_path, lake)


def test_each_partition_goes_on_after_its_greatest_offset_in_whatever_order_files_have_rows(
    events: Events,
) -> None:
    events.append((0, 0, 7), (1, 0, 9), (2, 1, 4), (3, 0, 8))
    events.append((4, 2, 0), (5, 1, 2))
    assert events.next_offsets(policy="Exact") == {0: 10, 1: 5, 2: 1}


def test_files_that_several_steps_read_count_with_all_their_rows(events: Events) -> None:
    events.append(*((minute, minute % 2, minute // 2) for minute in range(60)))
    assert events.next_offsets(policy="Exact") == {0: 30, 1: 30}


def test_rows_from_before_what_is_read_do_not_count(events: Events) -> None:
    events.append((-60, 3, 99), (0, 0, 7))
    assert events.next_offsets(policy="Exact") == {0: 8}


def test_another_attempt_takes_what_the_first_one_has_found(events: Events) -> None:
    events.append((0, 0, 7))
    assert events.next_offsets() == {0: 8}
    (name,) = events.kept.names("")
    events.kept.write_sealed(name, b'{"0": 5}')
    assert events.next_offsets() == {0: 5}


def test_a_row_without_an_offset_is_refused(events: Events) -> None:
    events.append((0, 0, 7), (1, 0, None))
    with pytest.raises(InvalidPlanInput, match="rows without a Kafka partition or offset"):
        events.next_offsets()


def test_a_partition_without_rows_starts_with_the_first_record_that_is_not_older_than_history(
    tmp_path: Path,
) -> None:
    kafka = {0: Held(0, 20, 5), 1: Held(3, 9, 4), 2: Held(0, 0, 0)}
    kept = Workspace(str(tmp_path))
    starts = with_empty_partitions("plan", "events", {0: 10}, kafka, kept)
    assert starts == {0: 10, 1: 4, 2: 0}


def test_records_of_a_partition_without_rows_are_missed_when_kafka_removes_them(
    tmp_path: Path,
) -> None:
    kept = Workspace(str(tmp_path))
    before, after = {0: Held(0, 20, 5), 1: Held(0, 9, 4)}, {0: Held(0, 30, 5), 1: Held(7, 12, 7)}
    with_empty_partitions("plan", "events", {0: 10}, before, kept)
    starts = with_empty_partitions("plan", "events", {0: 10}, after, kept)
    with pytest.raises(InvalidPlanInput, match="offsets 4 to 6 of partition 1; wait until"):
        check_held(FIELD, "events", starts, after)


def test_a_partition_that_is_added_later_starts_with_its_first_record(tmp_path: Path) -> None:
    kept = Workspace(str(tmp_path))
    kafka = {0: Held(0, 20, 5), 1: Held(0, 3, 0)}
    with_empty_partitions("plan", "events", {0: 10}, {0: Held(0, 20, 5)}, kept)
    assert with_empty_partitions("plan", "events", {0: 10}, kafka, kept) == {0: 10, 1: 0}


def reach_back(
    *partitions: Held, retention_us: int | None = None, limited_by_size: bool = False
) -> None:
    """Live traffic goes on at 1,000 µs, and it is 9,000."""
    retention, kafka = Retention(retention_us, limited_by_size), dict(enumerate(partitions))
    check_reaches_back(FIELD, "events", 1_000, kafka, retention=retention, now_us=9_000)


@pytest.mark.parametrize(
    "held",
    [
        Held(5, 20, 6),
        Held(5, 20, 20),
        Held(0, 20, 0),
        Held(0, 0, 0),
        Held(5, 5, 5),
        Held(5, 20, 9, first=7),
        Held(0, 20, 7, first=7),
    ],
)
def test_kafka_that_holds_older_records_or_has_removed_none_holds_all_since_a_time(
    held: Held,
) -> None:
    reach_back(held)
    reach_back(held, retention_us=8_500, limited_by_size=True)


def test_records_may_be_lost_where_all_that_kafka_holds_is_newer() -> None:
    with pytest.raises(
        InvalidPlanInput,
        match=r"from 1970-01-01T00:00:00.001000Z on, .* \(partition 1 begins at offset 5\); wait",
    ):
        reach_back(Held(0, 20, 7), Held(5, 20, 5))


def test_what_compaction_has_removed_does_not_count_as_older_than_what_is_left() -> None:
    with pytest.raises(InvalidPlanInput, match=r"are newer \(partition 0 begins at offset 5\)"):
        reach_back(Held(5, 20, 7, first=7))
    with pytest.raises(InvalidPlanInput, match=r"are newer \(partition 0 begins at offset 5\)"):
        reach_back(Held(5, 20, 20, first=20))


@pytest.mark.parametrize(
    "retention_us", [8_000, 9_000], ids=["since the time", "since long before it"]
)
def test_retention_by_time_has_removed_nothing_that_is_newer_than_it(retention_us: int) -> None:
    """As in a partition with a burst each day, of which Kafka holds the last one."""
    reach_back(Held(5, 20, 5), retention_us=retention_us)


@pytest.mark.parametrize(
    ("retention_us", "limited_by_size"),
    [(7_999, False), (8_500, True), ((2**63 - 1) * 1_000, False)],
    ids=["too short", "limited by size", "for good"],
)
def test_records_may_be_lost_where_retention_by_time_does_not_explain_what_was_removed(
    retention_us: int, limited_by_size: bool
) -> None:
    with pytest.raises(InvalidPlanInput, match="partition 0 begins at offset 5"):
        reach_back(Held(5, 20, 5), retention_us=retention_us, limited_by_size=limited_by_size)


def test_records_may_be_lost_where_kafka_holds_none_and_would_have_removed_them() -> None:
    with pytest.raises(InvalidPlanInput, match="partition 0 begins at offset 5"):
        reach_back(Held(5, 5, 5), retention_us=7_500)


@pytest.mark.parametrize(
    "partitions",
    [
        {},
        {0: Held(5, 5, 5)},
        {0: Held(0, 20, 20), 1: Held(0, 20, 19)},
        {0: Held(0, 20, 3), 1: Held(5, 5, 5)},
    ],
)
def test_times_fit_where_a_partition_has_records_since_then_or_none_holds_any(
    partitions: dict[int, Held],
) -> None:
    check_times_fit(FIELD, "events", 1_000, partitions)


def test_times_do_not_fit_where_all_records_are_older() -> None:
    kafka = {0: Held(0, 20, 20), 1: Held(5, 5, 5)}
    with pytest.raises(InvalidPlanInput, match="topic events has no record at or after"):
        check_times_fit(FIELD, "events", 1_000, kafka)


def test_kafka_may_hold_nothing_after_history_yet() -> None:
    check_held(FIELD, "events", {0: 10}, {0: Held(10, 10, 10)})


def test_records_that_kafka_no_longer_holds_are_named() -> None:
    kafka = {0: Held(12, 20, 12), 1: Held(0, 9, 0)}
    with pytest.raises(InvalidPlanInput, match="offsets 10 to 11 of partition 0; wait until"):
        check_held(FIELD, "events", {0: 10, 1: 9}, kafka)


def test_records_may_be_gone_that_history_may_still_read() -> None:
    kafka = {0: Held(12, 20, 12), 1: Held(0, 9, 0)}
    assert still_held({0: 10, 1: 9}, kafka) == {0: 12, 1: 9}
    with pytest.raises(InvalidPlanInput, match="partition 1 ends at offset 9"):
        check_held(FIELD, "events", still_held({0: 10, 1: 10}, kafka), kafka)


@pytest.mark.parametrize(
    ("kafka", "what"),
    [
        ({0: Held(0, 9, 0)}, "partition 0 ends at offset 9"),
        ({1: Held(0, 9, 0)}, "partition 0 does not exist"),
    ],
)
def test_another_topic_of_the_name_is_refused(kafka: dict[int, Held], what: str) -> None:
    with pytest.raises(InvalidPlanInput, match=f"rows that topic events never had: {what}"):
        check_held(FIELD, "events", {0: 10}, kafka)


def test_a_message_names_a_few_partitions_of_many() -> None:
    history, kafka = dict.fromkeys(range(9), 1), dict.fromkeys(range(9), Held(5, 9, 5))
    with pytest.raises(InvalidPlanInput, match=r"1 to 4 of partition 2 and 6 more;"):
        check_held(FIELD, "events", history, kafka)


def until(
    following: dict[int, int], kafka: dict[int, Held], retention_us: int | None = 50
) -> int | None:
    return kept_until_us(following, kafka, newest_us=1_000, retention_us=retention_us, now_us=9_000)


def test_the_oldest_record_after_history_is_kept_for_the_time_of_retention() -> None:
    kafka = {0: Held(0, 20, 0, 1_200), 1: Held(0, 20, 0, 1_100), 2: Held(0, 5, 0, 1_001)}
    assert until({0: 10, 1: 10, 2: 5}, kafka) == 1_150, "nothing follows in partition 2 yet"


def test_records_older_than_the_newest_row_may_follow_it() -> None:
    assert until({0: 10}, {0: Held(0, 20, 0, None)}) == 1_050


def test_records_that_are_still_to_come_are_kept_from_now_on() -> None:
    assert until({0: 20}, {0: Held(0, 20, 0, None)}) == 9_050


@pytest.mark.parametrize("retention_us", [None, (2**63 - 1) * 1_000])
def test_a_retention_beyond_the_calendar_is_for_good(retention_us: int | None) -> None:
    """Many set ``retention.ms`` to the greatest number that there is."""
    assert until({0: 10}, {0: Held(0, 20, 0, 1_200)}, retention_us) is None
