"""The state of a Backfill at one moment, for any kind of display."""

from dataclasses import dataclass
from datetime import datetime

from backfill.api.backfill import Backfill
from backfill.api.conditions import Condition, ConditionType, Reason, find_condition
from backfill.api.errors import BadInput, Problem
from backfill.api.quantities import count
from backfill.api.status import Attempt, BackfillStatus
from backfill.cli.text import lasted
from backfill.planning.planning_progress import PlanningProgress

_STAGES = (
    ConditionType.HANDED_OVER,
    ConditionType.PUBLISHED,
    ConditionType.RUNNING,
    ConditionType.PLANNED,
)
_REMOVAL = {Reason.REMOVING, Reason.REMOVAL_FAILED}


@dataclass(frozen=True, slots=True)
class View:
    """A Backfill after a reconcile."""

    backfill: Backfill
    now: datetime
    planning: PlanningProgress | None = None

    @property
    def status(self) -> BackfillStatus:
        """Status of the Backfill."""
        return self.backfill.status

    @property
    def name(self) -> str:
        """Name of the Backfill."""
        return self.backfill.metadata.name

    @property
    def stage(self) -> Condition | None:
        """The condition that describes the current stage best.

        That of the removal if there is one, otherwise that of the last stage that has begun.
        """
        outcome = find_condition(self.status.conditions, ConditionType.SUCCEEDED)
        if outcome is not None and outcome.reason in _REMOVAL:
            return outcome
        found = (find_condition(self.status.conditions, kind) for kind in _STAGES)
        return next((condition for condition in found if condition is not None), None)

    @property
    def stage_seconds(self) -> float:
        """How long the status of that condition has been the same."""
        return lasted(self.stage.last_transition_time, self.now) if self.stage else 0

    @property
    def failed(self) -> bool:
        """Whether the Backfill has failed."""
        return has_failed(self.backfill)

    @property
    def attempt(self) -> Attempt | None:
        """The last attempt."""
        return self.status.attempts[-1] if self.status.attempts else None

    @property
    def planned(self) -> bool:
        """Whether there is a plan."""
        return self.status.plan_id is not None

    @property
    def read_range(self) -> tuple[datetime, datetime]:
        """Start and end of what is read."""
        window, handed = self.backfill.spec.window, self.status.hand_off
        start = window.start - window.warm_up
        if window.live:  # and later than the start in any case, since bars end there
            return start, (handed.history_end if handed else None) or max(self.now, window.start)
        return start, window.end + window.drain

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since work began."""
        return lasted(self.status.started_at or self.now, self.status.finished_at or self.now)


def attempt_numbered(backfill: Backfill, number: int | None, see: str) -> Attempt:
    """An attempt, by default the last one. ``see`` is the advice where there is none.

    Raises:
        BadInput: there is no such attempt.
    """
    name, attempts = backfill.metadata.name, backfill.status.attempts
    if not attempts:
        raise BadInput(Problem("", f"no attempt of {name} has started yet", see))
    found = [each for each in attempts if number in (None, each.number)]
    if not found:
        known = ", ".join(str(attempt.number) for attempt in attempts)
        raise BadInput(
            Problem("--attempt", f"{name} has no attempt {number}", f"choose one of: {known}")
        )
    return found[-1]


def has_failed(backfill: Backfill) -> bool:
    """Whether a Backfill has failed, as far as is known."""
    outcome = find_condition(backfill.status.conditions, ConditionType.SUCCEEDED)
    return outcome is not None and outcome.status == "False"


def in_order(conditions: tuple[Condition, ...]) -> list[Condition]:
    """Conditions in the order of their stages."""
    return sorted(conditions, key=lambda condition: list(ConditionType).index(condition.type))


def planning_in_words(progress: PlanningProgress | None) -> str:
    """Progress of planning."""
    if progress is None:
        return "reading the metadata of the tables"
    manifests = f"{progress.manifests_done:,} of {count(progress.manifests, 'manifest')}"
    return f"{progress.source}: {manifests}, {count(progress.files, 'file')}"
