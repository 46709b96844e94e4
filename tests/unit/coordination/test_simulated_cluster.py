"""The promises on order, alignment and determinism, as invariants of a simulated cluster in which
anything may fail.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from simulated_run import BrokenPromiseError, Cluster, History, Rules
from timelines import histories

from backfill.coordination.released_steps import release
from backfill.coordination.timeline import Timeline
from backfill.coordination.watermarks import Watermarks, watermarks
from backfill.protocol.split_assignment import SplitAssignmentStatus

ANY_MESSAGE = st.integers(0, 20)
ANY_QUERY = st.integers(0, 2)


class AnythingMayHappen(RuleBasedStateMachine):
    """Every step is one thing that can happen next; the end is that nothing fails any more."""

    coordination = Rules()

    @initialize(history=histories())
    def start(self, history: History) -> None:
        self.cluster = Cluster(history, self.coordination)

    @rule()
    def the_controller_decides(self) -> None:
        self.cluster.controller_turn()

    @rule()
    def the_controller_restarts(self) -> None:
        self.cluster.restart_controller()

    @rule()
    def the_application_starts_a_query(self) -> None:
        self.cluster.start_query()

    @rule()
    def the_driver_reports(self) -> None:
        self.cluster.report()

    @rule()
    def the_driver_crashes(self) -> None:
        self.cluster.crash_driver()

    @rule(query=ANY_QUERY)
    def a_query_takes_a_small_step(self, query: int) -> None:
        self.cluster.query_turn(query)

    @rule(query=ANY_QUERY)
    def a_query_is_fast(self, query: int) -> None:
        self.cluster.query_turn(query, turns=50)

    @rule(number=ANY_MESSAGE, keep=st.booleans())
    def a_message_reaches_the_driver(self, number: int, keep: bool) -> None:
        self.cluster.deliver_to_driver(number, keep)

    @rule(number=ANY_MESSAGE, keep=st.booleans())
    def a_message_reaches_the_controller(self, number: int, keep: bool) -> None:
        self.cluster.deliver_to_controller(number, keep)

    @rule()
    def all_goes_well_for_a_while(self) -> None:
        for _ in range(3):
            self.cluster.controller_turn()
            self.cluster.deliver_to_driver(-1)
            for query in range(3):
                self.cluster.query_turn(query, turns=10)
            self.cluster.report()
            self.cluster.deliver_to_controller(-1)

    @rule()
    def messages_are_lost(self) -> None:
        self.cluster.lose_messages()

    @rule(suspended=st.booleans())
    def a_person_suspends_or_resumes(self, suspended: bool) -> None:
        self.cluster.suspended = suspended

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.settle()


TestAnythingMayHappen = AnythingMayHappen.TestCase
TestAnythingMayHappen.settings = settings(
    max_examples=300,
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow],
)


def _ignoring_what_has_not_started(
    timeline: Timeline, status: SplitAssignmentStatus | None
) -> Watermarks:
    return watermarks(timeline, status and status.model_copy(update={"phase": "Running"}))


def _leaving_out_the_silent(timeline: Timeline, status: SplitAssignmentStatus | None) -> Watermarks:
    names = {
        source.name for query in (status.queries if status else ()) for source in query.sources
    }
    heard = tuple(source for source in timeline.sources if source.name in names)
    return _ignoring_what_has_not_started(
        replace(timeline, sources=heard or timeline.sources), status
    )


def _of_the_fastest_query(timeline: Timeline, status: SplitAssignmentStatus | None) -> Watermarks:
    reads = [source for query in (status.queries if status else ()) for source in query.sources]
    first = {
        s.name: max((r.committed for r in reads if r.name == s.name), default=0)
        for s in timeline.sources
    }
    marks = {name: timeline.position_us(step) for name, step in first.items()}
    return Watermarks(marks, min(marks.values()))


def _one_step_too_many(timeline: Timeline, watermark_us: int, previous: int) -> int:
    return min(release(timeline, watermark_us, previous) + 1, timeline.steps)


def _forgetting_what_was_released(timeline: Timeline, watermark_us: int, _previous: int) -> int:
    return release(timeline, watermark_us, 0)


def _only_what_lies_behind_the_watermark(
    timeline: Timeline, watermark_us: int, previous: int
) -> int:
    return max(previous, sum(end <= watermark_us for end in timeline.ends_us))


WRONG: dict[str, tuple[Rules, str]] = {
    "queries not started yet are ignored": (
        Rules(watermarks=_ignoring_what_has_not_started),
        "ahead of the global watermark",
    ),
    "silent sources are left out": (
        Rules(watermarks=_leaving_out_the_silent),
        "ahead of the global watermark",
    ),
    "the fastest query counts": (
        Rules(watermarks=_of_the_fastest_query),
        "ahead of the global watermark",
    ),
    "a step too many is released": (
        Rules(release=_one_step_too_many),
        "ahead of the global watermark",
    ),
    "what was released is forgotten": (Rules(release=_forgetting_what_was_released), "went back"),
    "only steps behind the watermark are released": (
        Rules(release=_only_what_lies_behind_the_watermark),
        "no end",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_simulation_notices_when(wrong: str) -> None:
    rules, consequence = WRONG[wrong]
    machine = type("WrongRules", (AnythingMayHappen,), {"coordination": rules})
    search = settings(
        max_examples=2000,
        stateful_step_count=40,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(BrokenPromiseError, match=consequence):
        run_state_machine_as_test(machine, settings=search)
