"""The status that a decision builds: it starts as the recorded one and collects changes."""

from datetime import datetime
from typing import Literal, TypedDict, Unpack

from backfill.api.conditions import Condition, ConditionType, Reason, find_condition, set_condition
from backfill.api.errors import Problem, grouped
from backfill.api.hand_off import HandOffStatus
from backfill.api.redaction import redact
from backfill.api.resolved import Resolved
from backfill.api.status import (
    MOST_ATTEMPTS_KEPT,
    Attempt,
    BackfillStatus,
    Cost,
    DecisionStatus,
    InputWait,
    JobRetry,
    OutputStatus,
    Progress,
    SourceStatus,
)
from backfill.controller.decisions.observed import Observed

Outcome = Literal["Running", "Succeeded", "Stopped", "Failed"]
"""How an attempt ended."""
_MOST_MESSAGE = 8_000


class StatusChange(TypedDict, total=False):
    """Fields of a status that a decision may set, typed so that each change is checked."""

    observed_generation: int
    spec_digest: str
    resolved: Resolved | None
    plan_id: str | None
    plan_digest: str
    application_digest: str
    workspace: str | None
    tagged_tables: tuple[str, ...]
    started_at: datetime | None
    finished_at: datetime | None
    next_attempt_at: datetime | None
    discarded_at: datetime | None
    retry: JobRetry | None
    input_wait: InputWait | None
    attempts: tuple[Attempt, ...]
    progress: Progress
    cost: Cost | None
    watermark: datetime | None
    sources: tuple[SourceStatus, ...]
    outputs: tuple[OutputStatus, ...]
    hand_off: HandOffStatus | None
    result: str | None
    decision: DecisionStatus | None
    undo: DecisionStatus | None
    conditions: tuple[Condition, ...]


class AttemptChange(TypedDict, total=False):
    """Fields of an attempt that change after it was added."""

    finished_at: datetime | None
    outcome: Outcome
    fruitless: int
    unheard_since: datetime | None
    stopping_since: datetime | None
    message: str


class Draft:
    """Owned by one decision; ``status`` is its result."""

    def __init__(self, observed: Observed):
        self.status: BackfillStatus = observed.backfill.status
        self._recorded = observed.backfill.status.conditions
        self._now = observed.now
        self._metadata = observed.backfill.metadata

    def set(self, **fields: Unpack[StatusChange]) -> None:
        """Replaces fields of the status."""
        self.status = self.status.model_copy(update=dict(fields))

    def condition(
        self,
        kind: ConditionType,
        value: Literal["True", "False", "Unknown"],
        reason: Reason,
        message: str,
    ) -> None:
        """Sets a condition for this generation, with the current time if it changes.

        Credentials in the message are redacted, since drivers and libraries write into it.
        """
        conditions, generation = self.status.conditions, self._metadata.generation
        text = redact(message[:_MOST_MESSAGE])[:_MOST_MESSAGE]
        self.set(
            conditions=set_condition(
                conditions,
                kind,
                value,
                reason,
                text,
                self._now,
                generation,
                recorded=self._recorded,
            )
        )

    def remove_condition(self, kind: ConditionType) -> None:
        """Removes a condition."""
        self.set(
            conditions=tuple(
                condition for condition in self.status.conditions if condition.type != kind
            )
        )

    def fail(self, kind: ConditionType, reason: Reason, message: str) -> None:
        """Fails this generation of the Backfill, because of condition ``kind``."""
        self.condition(kind, "False", reason, message)
        self.condition(ConditionType.SUCCEEDED, "False", reason, message)
        self.set(finished_at=self._now, next_attempt_at=None, retry=None, input_wait=None)

    def fail_input(self, kind: ConditionType, problems: tuple[Problem, ...]) -> None:
        """Fails the Backfill because of invalid input."""
        self.fail(kind, Reason.INVALID_INPUT, in_lines(problems))

    def add_attempt(self, attempt: Attempt) -> None:
        """Adds an attempt. Only the last ones are kept."""
        self.set(attempts=(*self.status.attempts, attempt)[-MOST_ATTEMPTS_KEPT:])

    def change_attempt(self, **fields: Unpack[AttemptChange]) -> None:
        """Replaces fields of the last attempt."""
        *earlier, last = self.status.attempts
        self.set(attempts=(*earlier, last.model_copy(update=dict(fields))))

    def kubectl(self, verb: str) -> str:
        """A ``kubectl`` command for this Backfill that works wherever a person reads it."""
        return f"kubectl backfill {verb} {self._metadata.name} -n {self._metadata.namespace}"

    def find(self, kind: ConditionType) -> Condition | None:
        """A condition, with the changes so far."""
        return find_condition(self.status.conditions, kind)


def in_lines(problems: tuple[Problem, ...]) -> str:
    """All problems, each on a line."""
    return "\n".join(grouped(problems))
