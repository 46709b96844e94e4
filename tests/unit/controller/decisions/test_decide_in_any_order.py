"""Whatever happens in whatever order: what must never be decided, and what must come to an end."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from small_world import SmallWorld

from backfill.api.conditions import ConditionType, find_condition
from backfill.api.errors import BackfillError, InvalidPlanInput, Problem
from backfill.controller.decisions.deleting import WORKING_LIMIT
from backfill.controller.driver import DriverState
from situations import STEPS

ERRORS = (
    BackfillError("the catalog does not answer"),
    InvalidPlanInput(Problem("spec", "away", may_pass=True)),
    InvalidPlanInput(Problem("spec", "wrong")),
)
REASONS = (
    "Submitted",
    "NotSubmitted",
    "Unschedulable",
    "ImagePullBackOff",
    "CreateContainerConfigError",
    "Suspended",
    "Odd",
)
ENDS = (
    DriverState("Exited", 0),
    DriverState("Exited", 1),
    DriverState("Exited", reason="Evicted"),
    DriverState("Absent"),
)


class AnyOrder(RuleBasedStateMachine):
    """One Backfill in a world that does what it likes; after each event the controller does what it
    can.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = SmallWorld()
        self.events = 0
        self.numbers: list[int] = []
        self.world.settle()

    def _after(self) -> None:
        self.events += 1
        self.world.settle()

    @rule(seconds=st.sampled_from((1, 15, 61, 400, 1200, 4000)))
    def time_passes(self, seconds: int) -> None:
        self.world.pass_time(seconds)
        self._after()

    @rule(error=st.sampled_from((None, None, None, *ERRORS)))
    def the_job_ends(self, error: Exception | None) -> None:
        self.world.end_job(error)
        self._after()

    @rule(rounds=st.integers(1, 12))
    def all_goes_well_for_a_while(self, rounds: int) -> None:
        world = self.world
        for _ in range(rounds):
            world.end_job(None)
            self._after()
            world.pass_time(5)
            if world.alive is not None and world.drivers[world.alive].phase == "Pending":
                world.drivers[world.alive] = DriverState("Running", since=world.now)
                self._after()
            world.commit_what_is_released()
            self._after()

    @precondition(lambda self: self.world.alive)
    @rule(reason=st.sampled_from(REASONS))
    def the_driver_waits(self, reason: str) -> None:
        number = self.world.alive
        if self.world.drivers[number].phase == "Pending":
            self.world.drivers[number] = DriverState("Pending", reason=reason, since=self.world.now)
        self._after()

    @precondition(lambda self: self.world.alive)
    @rule()
    def the_driver_starts(self) -> None:
        number = self.world.alive
        if self.world.drivers[number].phase == "Pending":
            self.world.drivers[number] = DriverState("Running", since=self.world.now)
        self._after()

    @precondition(lambda self: self.world.alive)
    @rule(
        phase=st.sampled_from(("Starting", "Running", "Running", "Stopped", "Failed")),
        steps=st.integers(0, 3),
    )
    def the_driver_reports(self, phase: str, steps: int) -> None:
        world = self.world
        if world.drivers[world.alive].phase == "Running":
            released = world.assignment.released if world.assignment else 0
            world.committed = max(world.committed, min(world.committed + steps, released))
            world.say(phase, world.committed)
        self._after()

    @precondition(lambda self: self.world.alive)
    @rule(committed=st.integers(0, STEPS))
    def a_report_comes_late(self, committed: int) -> None:
        world = self.world
        if world.drivers[world.alive].phase == "Running":
            world.say("Running", min(committed, world.committed))
        self._after()

    @precondition(lambda self: self.world.alive)
    @rule(end=st.sampled_from(ENDS))
    def the_driver_is_lost(self, end: DriverState) -> None:
        self.world.drivers[self.world.alive] = end
        self._after()

    @rule(acts=st.integers(0, 1), seconds=st.sampled_from((0, 20)))
    def the_controller_is_killed(self, acts: int, seconds: int) -> None:
        if not self.world.removed:
            self.world.turn(survives=acts)
        self.world.job = None
        self.world.pass_time(seconds)
        self._after()

    @rule()
    def a_person_suspends_it(self) -> None:
        self.world.edit(suspend=True)
        self._after()

    @precondition(lambda self: self.world.spec.get("suspend"))
    @rule()
    def a_person_resumes_it(self) -> None:
        self.world.edit(suspend=False)
        self._after()

    @rule()
    def a_person_wants_it_tried_again(self) -> None:
        self.world.edit(retryNonce=str(self.events))
        self._after()

    @precondition(lambda self: self.events > 40 and self.world.deleted_at is None)
    @rule()
    def a_person_deletes_it(self) -> None:
        self.world.deleted_at = self.world.now
        self._after()

    @invariant()
    def attempts_are_counted_and_made_once(self) -> None:
        for attempt in self.world.status.attempts:
            if attempt.number not in self.numbers:
                assert attempt.number == len(self.numbers) + 1
                self.numbers.append(attempt.number)
        assert all(count == 1 for count in self.world.made.values())
        assert [
            attempt.number for attempt in self.world.status.attempts if attempt.outcome == "Running"
        ] in (
            [],
            self.numbers[-1:],
        )

    @invariant()
    def a_deleted_backfill_is_let_go_of_in_time(self) -> None:
        world = self.world
        asked_long_ago = (
            world.deleted_at is not None and world.deleted_at + WORKING_LIMIT <= world.now
        )
        assert world.removed or not asked_long_ago

    @invariant()
    def tools_are_told_one_thing(self) -> None:
        conditions = self.world.status.conditions
        ready, busy, stalled = (
            find_condition(conditions, kind)
            for kind in (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED)
        )
        assert not (busy and stalled)
        assert all(found is None or found.status == "True" for found in (busy, stalled))
        assert (ready is not None and ready.status == "True") == (self.world.outcome == "True")
        if self.world.outcome == "False":
            assert stalled is not None

    @invariant()
    def every_condition_says_why_in_words_of_its_own(self) -> None:
        for condition in self.world.status.conditions:
            assert condition.message not in ("", condition.reason, condition.type), condition

    @invariant()
    def writes_are_few(self) -> None:
        assert self.world.writes <= 5 * (self.events + 2)


AnyOrder.TestCase.settings = settings(max_examples=100, stateful_step_count=60)
TestAnyOrder = AnyOrder.TestCase
