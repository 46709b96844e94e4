"""What to do next with a Backfill. Pure: the same observation gives the same decision."""

from collections.abc import Callable

from backfill.api.conditions import ConditionType, Reason
from backfill.controller.decision import Decision, KillDriver, Next
from backfill.controller.draft import Draft
from backfill.controller.observed import Observed
from backfill.controller.phases.planning import plan
from backfill.controller.phases.publishing import publish
from backfill.controller.phases.removing import remove
from backfill.controller.phases.running import run
from backfill.controller.phases.settling import settle
from backfill.controller.phases.stopping import stop

_Phase = Callable[[Observed, Draft], Next]


def decide(observed: Observed) -> Decision:
    """The status to record and the acts that follow from what was observed."""
    draft = Draft(observed)
    if not finished(observed):
        _begin(observed, draft)
    following = _phase(observed)(observed, draft)
    return Decision(draft.status, following)


def finished(observed: Observed) -> bool:
    """Whether this generation has succeeded or failed for good. A new generation of a failed one is tried anew."""
    outcome = Draft(observed).find(ConditionType.SUCCEEDED)
    if outcome is None or outcome.status == "Unknown":
        return False
    return outcome.status == "True" or outcome.observed_generation >= observed.backfill.metadata.generation


def _begin(observed: Observed, draft: Draft) -> None:
    draft.set(
        observed_generation=observed.backfill.metadata.generation,
        started_at=draft.status.started_at or observed.now,
        finished_at=None,
    )
    draft.condition(ConditionType.SUCCEEDED, "Unknown", Reason.IN_PROGRESS)


def _phase(observed: Observed) -> _Phase:
    status = observed.backfill.status
    if observed.backfill.metadata.deletion_timestamp is not None:
        return remove
    if finished(observed):
        return _rest
    if observed.backfill.spec.suspend or observed.shutting_down:
        return stop
    if status.plan_id is None or observed.header is None:
        return plan
    if not status.attempts or status.attempts[-1].outcome != "Succeeded":
        return run
    running = Draft(observed).find(ConditionType.RUNNING)
    return publish if running and running.reason == Reason.ALL_STEPS_COMMITTED else settle


def _rest(observed: Observed, draft: Draft) -> Next:
    """A driver may have been left at work where the plan was lost under it."""
    attempt = observed.attempt
    if attempt is not None and observed.driver.phase == "Running":
        return Next(actions=(KillDriver(attempt.number),))
    if attempt is not None:
        draft.change_attempt(outcome="Failed", finished_at=observed.now, message="the backfill failed meanwhile")
    return Next(at_rest=True)
