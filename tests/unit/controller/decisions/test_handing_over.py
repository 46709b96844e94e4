"""After history: the state goes on with live traffic, by a live application that is created once."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.status import BackfillStatus
from backfill.controller.decisions.actions import Decision, StartDriver, StartLive
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.handing_over import with_report
from backfill.controller.decisions.policy import CLUSTER, LOCAL
from backfill.controller.driver import DriverState
from backfill.controller.manager.events import transitions
from backfill.coordination.recent_rate import Rate
from backfill.protocol.hand_off_messages import (
    HandOffQuery,
    HandOffReport,
    HandOffSource,
    LiveQuery,
    LiveReport,
)
from cases import cases
from situations import (
    NOW,
    RUNNING,
    STEPS,
    assigned,
    attempt,
    backfill,
    observed,
    planned,
    reported,
    verified,
    with_condition,
)

EXITED = DriverState("Exited", 0)
SOURCES = [
    {
        "name": "clicks",
        "table": "lake.raw.clicks",
        "timestampColumn": "at",
        "kafka": {"partitionColumn": "p", "offsetColumn": "o"},
        "live": {"kafka": {"topic": "clicks"}},
    }
]
OUTPUTS = [{"name": "counts", "table": "lake.ops.counts", "publish": {"mode": "None"}}]
HANDED = HandOffReport(
    sources=(HandOffSource(source="clicks", topic="clicks", partitions=1, offsets={"0": 7}),),
    queries=(
        HandOffQuery(
            query="counts",
            checkpoint_location="s3://live/counts",
            batch=9,
            state_partitions=4,
        ),
    ),
    written=True,
    seconds=3,
)


def resource(status: BackfillStatus, start: str, **spec: Any) -> Backfill:
    hand_off = {"to": "Live", "start": start, **spec.pop("handOff", {})}
    window = {"start": "2024-01-01T00:00:00Z", "end": "Live"}
    fields = {"window": window, "sources": SOURCES, "outputs": OUTPUTS, "handOff": hand_off}
    return backfill(status, **{**fields, **spec})


def finishing(start: str = "Deploy", **report: Any) -> BackfillStatus:
    """The status after the driver has ended with a report."""
    status = planned(attempts=(attempt(),), committed=STEPS)
    seen = observed(
        resource(status, start),
        driver=EXITED,
        assignment=assigned(),
        report=reported("Finished", committed=STEPS + 1, **report),
        policy=CLUSTER,
    )
    return decide(seen).status


def published(start: str = "Deploy") -> BackfillStatus:
    """The status when the staged rows are counted, and nothing is left but to hand over."""
    status = finishing(start, hand_off=HANDED)
    return with_condition(status, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)


def stage(status: BackfillStatus, kind: ConditionType) -> tuple[str, Reason, str]:
    condition = find_condition(status.conditions, kind)
    assert condition is not None
    return condition.status, condition.reason, condition.message


def live(lag: float | None, at: datetime = NOW, query: str = "counts", **fields: Any) -> LiveReport:
    """What the live application's driver reports of a query."""
    found = LiveQuery(query=query, batch=12, records_behind=5, lag_seconds=lag, at=at, **fields)
    return LiveReport(queries=(found,), heartbeat=at)


def test_an_attempt_that_has_not_handed_its_state_over_has_failed() -> None:
    last = finishing().attempts[-1]
    assert last.outcome == "Failed"
    assert "without handing over its state" in last.message
    unwritten = HANDED.model_copy(update={"written": False})
    assert finishing(hand_off=unwritten).attempts[-1].outcome == "Failed"


def reading(rate: float, kept: timedelta | None) -> BackfillStatus:
    """The status while a driver reads history, so many rows of 500 a second."""
    source = HandOffSource(
        source="clicks",
        topic="clicks",
        partitions=1,
        offsets={"0": 7},
        kept_until=NOW + kept if kept else None,
    )
    seen = observed(
        resource(planned(attempts=(attempt(),)), "Prepare"),
        driver=RUNNING,
        assignment=assigned(),
        report=reported("Running", committed=5, hand_off=HandOffReport(sources=(source,))),
        rate=Rate(100 * rate, 100.0),
        policy=CLUSTER,
    )
    return decide(seen).status


def test_records_that_kafka_may_remove_before_history_is_read_are_warned_of() -> None:
    hour = timedelta(hours=1)
    slow, fast, for_good = reading(0.1, hour), reading(10.0, hour), reading(0.1, None)
    message = stage(slow, ConditionType.RUNNING)[2]
    assert "after 2024-03-01T13:00:00Z, Kafka may remove records that follow history" in message
    for status in (fast, for_good):
        assert "Kafka" not in stage(status, ConditionType.RUNNING)[2]
        assert not any(each.reason == "RetentionTooShort" for each in transitions(slow, status))
    assert slow.hand_off is not None
    assert slow.hand_off.kept_until == NOW + hour
    assert not slow.hand_off.written
    assert "RetentionTooShort" in [each.reason for each in transitions(fast, slow)]
    assert "RetentionTooShort" not in [each.reason for each in transitions(slow, slow)]


def reading_twice(*queries: str) -> BackfillStatus:
    """The status while a driver reads history, with these queries that count records twice."""
    source = HandOffSource(
        source="clicks",
        topic="clicks",
        partitions=1,
        offsets={"0": 7},
        starting_timestamp=NOW - timedelta(hours=1),
    )
    report = HandOffReport(sources=(source,), repeated_in=queries)
    seen = observed(
        resource(planned(attempts=(attempt(),)), "Prepare"),
        driver=RUNNING,
        assignment=assigned(),
        report=reported("Running", committed=5, hand_off=report),
        policy=CLUSTER,
    )
    return decide(seen).status


def test_queries_that_may_count_records_twice_are_warned_of() -> None:
    doubled, sure = reading_twice("counts"), reading_twice()
    assert (
        "live traffic continues with records from 2024-03-01T11:00:00Z, some of which are already"
        " part of history, and these queries are not known to drop duplicates: counts; their"
        " results may count these records twice" in stage(doubled, ConditionType.RUNNING)[2]
    )
    assert "twice" not in stage(sure, ConditionType.RUNNING)[2]
    assert "RecordsReadTwice" in [each.reason for each in transitions(sure, doubled)]
    assert "RecordsReadTwice" not in [each.reason for each in transitions(doubled, doubled)]
    handed = reading_twice("counts", "sums").hand_off
    assert handed is not None
    assert handed.starting_timestamp == NOW - timedelta(hours=1)
    assert handed.repeated_in == ("counts", "sums")


def test_what_is_read_twice_is_told_once_although_each_attempt_finds_it_anew() -> None:
    known = reading_twice("counts", "sums").hand_off
    report = HandOffReport(
        sources=(HandOffSource(source="clicks", topic="clicks", partitions=1, offsets={"0": 7}),)
    )
    assert with_report(known, report) == known
    written = report.model_copy(update={"repeated_in": ("sums",), "written": True})
    assert with_report(known, written).repeated_in == ("sums",)


@pytest.mark.parametrize("start", ["Prepare", "Deploy"])
def test_who_has_live_traffic_is_told_what_is_counted_twice(start: str) -> None:
    source = HANDED.sources[0].model_copy(update={"starting_timestamp": NOW})
    report = HANDED.model_copy(update={"sources": (source,), "repeated_in": ("counts",)})
    status = finishing(start, hand_off=report)
    assert status.hand_off is not None
    assert status.hand_off.sources[0].starting_timestamp == NOW
    status = with_condition(status, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)
    seen = observed(resource(status, start), policy=CLUSTER)
    if start == "Deploy":
        status = decide(seen).status
        running = DriverState("Running")
        seen = observed(
            resource(status, start), live=running, live_report=live(lag=1), policy=CLUSTER
        )
    message = stage(decide(seen).status, ConditionType.HANDED_OVER)[2]
    assert "these queries are not known to drop duplicates: counts" in message


def test_where_the_state_is_and_where_it_goes_on_is_recorded() -> None:
    status = finishing(hand_off=HANDED)
    assert status.attempts[-1].outcome == "Succeeded"
    handed = status.hand_off
    assert handed is not None
    assert handed.to_manifest() == {
        "sources": [{"name": "clicks", "topic": "clicks", "partitions": 1, "offsets": {"0": 7}}],
        "queries": [
            {
                "name": "counts",
                "checkpointLocation": "s3://live/counts",
                "batch": 9,
                "statePartitions": 4,
            }
        ],
        "seconds": 3.0,
    }


@cases(
    ("policy", "how"),
    {
        "on a cluster": (CLUSTER, "kubectl patch sparkapplications.sparkoperator.k8s.io app"),
        "here": (LOCAL, "start app"),
    },
)
def test_a_prepared_application_is_for_the_team_to_start(policy: Any, how: str) -> None:
    decision = decide(observed(resource(published("Prepare"), "Prepare"), policy=policy))
    value, reason, message = stage(decision.status, ConditionType.HANDED_OVER)
    assert (value, reason) == ("True", Reason.PREPARED)
    assert "counts in s3://live/counts" in message
    assert how in message
    assert stage(decision.status, ConditionType.SUCCEEDED)[0] == "True"
    assert decision.next.actions == ()


def test_how_to_start_is_said_however_many_checkpoints_there_are() -> None:
    places = tuple(
        HANDED.queries[0].model_copy(
            update={"query": f"q{n}", "checkpoint_location": f"s3://live/{n}/{'x' * 500}"}
        )
        for n in range(64)
    )
    status = with_condition(
        finishing("Prepare", hand_off=HANDED.model_copy(update={"queries": places})),
        ConditionType.RUNNING,
        "False",
        Reason.ALL_STEPS_COMMITTED,
    )
    decision = decide(observed(resource(status, "Prepare"), policy=CLUSTER))
    message = stage(decision.status, ConditionType.HANDED_OVER)[2]
    assert "64 checkpoints written" in message
    assert '{"spec":{"suspend":false}}' in message
    assert "q1 in s3://live/1" in message


class LiveWorld:
    """What is true after history, and a controller that may be killed between any two writes."""

    def __init__(self, **spec: Any) -> None:
        self.status = published()
        self.spec = spec
        self.generation = 1
        self.now = NOW
        self.app: DriverState | None = None
        self.made = 0
        self.report: LiveReport | None = None

    def look(self) -> Decision:
        handed = self.status.hand_off
        named = handed is not None and handed.application is not None
        found = resource(self.status, "Deploy", **self.spec)
        metadata = found.metadata.model_copy(update={"generation": self.generation})
        seen = observed(
            found.model_copy(update={"metadata": metadata}),
            policy=CLUSTER,
            live=(self.app or DriverState("Absent")) if named else None,
            live_report=self.report,
        )
        return decide(replace(seen, now=self.now))

    def turn(self, *, writes: bool = True, acts: bool = True) -> Decision:
        """One reconcile, killed before it writes or before it acts."""
        decision = self.look()
        if not writes:
            return decision
        self.status = decision.status
        for action in decision.next.actions if acts else ():
            assert isinstance(action, StartLive), action
            handed = self.status.hand_off
            assert handed is not None
            assert handed.application == "january-live", "created before its name is recorded"
            if self.app is None:
                self.app = DriverState("Pending", reason="Submitted")
                self.made += 1
        return decision

    @property
    def condition(self) -> tuple[str, Reason]:
        return stage(self.status, ConditionType.HANDED_OVER)[:2]

    @property
    def succeeded(self) -> str:
        return stage(self.status, ConditionType.SUCCEEDED)[0]


@pytest.mark.parametrize("killed_at", range(6))
@pytest.mark.parametrize("writes", [False, True])
def test_the_live_application_is_created_once_whenever_the_operator_is_killed(
    killed_at: int, *, writes: bool
) -> None:
    world = LiveWorld()
    for number in range(9):
        if number == killed_at:
            world.turn(writes=writes, acts=False)
        world.turn()
        if number == 2:
            world.app = RUNNING
        if number == 5:
            world.report = live(40)
    assert world.made == 1
    assert world.condition == ("True", Reason.LIVE)
    assert world.succeeded == "True"


def running(**spec: Any) -> LiveWorld:
    """A live application that runs, and has reported nothing yet."""
    world = LiveWorld(**spec)
    world.turn()
    world.app = RUNNING
    world.turn()
    assert world.condition == ("Unknown", Reason.CATCHING_UP)
    return world


@cases(
    "report",
    {
        "nothing": None,
        "another query": live(1, query="other"),
        "a lag that is unknown": live(None),
        "a lag above the bound": live(301),
        "a query that has ended": live(1, ended=True),
        "nothing since three minutes": live(1, at=NOW - timedelta(minutes=3)),
    },
)
def test_it_has_not_caught_up_while_its_driver_reports(report: LiveReport | None) -> None:
    world = running()
    world.report = report
    decision = world.turn()
    assert world.condition == ("Unknown", Reason.CATCHING_UP)
    assert world.succeeded == "Unknown"
    assert decision.next.requeue_seconds is not None
    assert decision.next.actions == ()


def test_its_lag_is_shown_and_the_bound_is_that_of_the_spec() -> None:
    world = running(handOff={"maxLag": "10m"})
    world.report = live(700)
    world.turn()
    handed = world.status.hand_off
    assert handed is not None
    assert handed.lag_seconds == 700
    assert (handed.queries[0].live_batch, handed.queries[0].records_behind) == (12, 5)
    world.report = live(599)
    world.turn()
    assert world.condition == ("True", Reason.LIVE)
    assert "at most 10m behind" in stage(world.status, ConditionType.SUCCEEDED)[2]


def running_with(*names: str) -> LiveWorld:
    """The same, with queries whose IDs are known: ``6a`` and following."""
    world = running()
    handed = world.status.hand_off
    assert handed is not None
    known = tuple(
        handed.queries[0].model_copy(update={"name": name, "query_id": f"6{letter}"})
        for name, letter in zip(names, "abcdef", strict=False)
    )
    queries = {"hand_off": handed.model_copy(update={"queries": known})}
    world.status = world.status.model_copy(update=queries)
    return world


def reports(*queries: tuple[str, str], at: datetime = NOW) -> LiveReport:
    """A report of queries that have caught up, by name and ID."""
    found = (live(1, at, query, query_id=query_id).queries[0] for query, query_id in queries)
    return LiveReport(queries=tuple(found), heartbeat=at)


@pytest.mark.parametrize("phase", ["Running", "Exited"])
def test_an_application_that_does_not_find_its_state_is_said(phase: Any) -> None:
    world = running_with("counts", "copies")
    world.app = DriverState(phase)
    world.report = reports(("counts", "7a"), ("copies", "6b"))
    decision = world.turn()
    assert world.condition == ("Unknown", Reason.LIVE_START_BLOCKED)
    message = stage(world.status, ConditionType.HANDED_OVER)[2]
    assert "january-live started the query counts without its state, so its res" in message
    assert message.endswith("\nthe state is in s3://live/counts")
    assert stage(world.status, ConditionType.STALLED)[0] == "True"
    assert decision.next.requeue_seconds is not None
    world.app, world.report = RUNNING, reports(("counts", "6a"), ("copies", "6b"))
    world.turn()
    assert world.condition == ("True", Reason.LIVE)


@cases(
    "report",
    {
        "nothing yet": LiveReport(heartbeat=NOW),
        "a query that has not started yet": reports(("copies", "6b")),
        "another query": reports(("others", "7a")),
        "a query without a name": reports(("7a", "7a")),
        "an older application's": reports(("counts", "7a"), at=NOW - timedelta(minutes=1)),
        "a query started in the place of one with another checkpoint": reports(
            ("counts", "7a"), ("counts", "6a")
        ),
    },
)
def test_a_query_may_start_late_or_again(report: LiveReport) -> None:
    world = running_with("counts", "copies")
    world.report = report
    world.turn()
    assert world.condition == ("Unknown", Reason.CATCHING_UP)


def test_what_has_not_started_from_its_state_yet_is_said() -> None:
    world = running_with("counts", "copies")
    world.report = reports(("copies", "6b"), ("7a", "7a"))
    world.turn()
    message = stage(world.status, ConditionType.HANDED_OVER)[2]
    assert message.endswith("no query has started yet from the state in s3://live/counts")


def test_what_an_earlier_driver_has_reported_of_a_query_does_not_count() -> None:
    world = running_with("counts", "copies")
    world.report = live(1, query="counts", query_id="6a")
    world.turn()
    world.report = live(1, query="copies", query_id="6b")
    world.turn()
    assert world.condition == ("Unknown", Reason.CATCHING_UP)
    assert world.status.hand_off is not None
    assert world.status.hand_off.lag_seconds is None


def test_a_query_without_a_name_is_known_by_its_id() -> None:
    world = running_with("counts")
    world.report = live(7, query="6a", query_id="6b")
    world.turn()
    assert world.condition == ("Unknown", Reason.CATCHING_UP)
    world.report = live(7, query="6a", query_id="6a")
    world.turn()
    assert world.condition == ("True", Reason.LIVE)


def test_an_application_that_somebody_deleted_is_not_created_again_by_itself() -> None:
    world = running()
    world.app = None
    decision = world.turn()
    assert decision.next.actions == ()
    assert world.condition == ("False", Reason.HAND_OFF_FAILED)
    assert world.succeeded == "False"
    world.turn()
    assert world.made == 1
    world.spec, world.generation = {"retryNonce": "again"}, 2
    world.turn()
    assert world.made == 2, "a person has asked for it"


def test_what_a_deleted_application_has_reported_does_not_count_for_the_next_one() -> None:
    world = running()
    world.app, world.report = None, live(1)
    world.turn()
    world.spec, world.generation = {"retryNonce": "again"}, 2
    world.now = NOW + timedelta(minutes=1)
    world.turn()
    world.app = RUNNING
    world.turn()
    assert world.condition == ("Unknown", Reason.CATCHING_UP)
    world.report = live(1, at=world.now)
    world.turn()
    assert world.condition == ("True", Reason.LIVE)


def test_a_refused_application_waits_for_a_person_and_then_goes_on() -> None:
    world = LiveWorld()
    world.turn(acts=False)
    world.app = DriverState("Exited", reason="Refused", message="quota exceeded")
    decision = world.turn(acts=False)
    assert world.condition == ("Unknown", Reason.LIVE_START_BLOCKED)
    assert "quota exceeded" in stage(world.status, ConditionType.HANDED_OVER)[2]
    assert stage(world.status, ConditionType.STALLED)[0] == "True"
    assert decision.next.actions == (StartLive(),), "it is tried again"
    world.app = RUNNING
    world.turn()
    assert world.condition == ("Unknown", Reason.CATCHING_UP)


def test_an_application_that_has_ended_is_said_and_may_come_back() -> None:
    world = running()
    world.report = live(1)
    world.app = DriverState("Exited", reason="Failed", message="out of memory")
    world.turn()
    assert world.condition == ("Unknown", Reason.LIVE_START_BLOCKED)
    assert "Failed: out of memory" in stage(world.status, ConditionType.HANDED_OVER)[2]
    world.app = RUNNING
    world.turn()
    assert world.condition == ("True", Reason.LIVE)


def test_nothing_is_written_while_nothing_changes() -> None:
    world = running()
    world.report = live(700)
    world.turn()
    assert world.look().status == world.status


def test_the_next_attempt_hands_over_what_the_last_one_did_not() -> None:
    seen = observed(resource(finishing(), "Deploy"), policy=CLUSTER, job=verified(2))
    decision = decide(replace(seen, now=NOW + timedelta(hours=1)))
    assert StartDriver(2) in decision.next.actions
