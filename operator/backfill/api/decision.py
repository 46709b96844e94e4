"""The BackfillDecision: what a person decides about a result, to publish it, to drop it, or to undo
its publication.

It is a kind of its own so that deciding needs a permission of its own, which editors of Backfills
need not have. It names the result by a digest, so that it counts for what was looked at and for
nothing that is made later.
"""

import hashlib
import json
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from backfill.api.backfill import ObjectMeta
from backfill.api.base import Model
from backfill.api.errors import BadInput, Problem
from backfill.api.field_types import Name
from backfill.api.status import (
    MOST_DECISION_REASON,
    BackfillStatus,
    DecisionReason,
    DecisionStatus,
    ResultId,
    Verdict,
    in_one_line,
)

DECISION_KIND: Final = "BackfillDecision"
_MOST_NAME = 1024
"""Characters of a person's name."""


def _name_in_one_line(name: object) -> object:
    """It stays too long if it is: cut, it could be another person's."""
    return name if isinstance(name, str) and len(name) > _MOST_NAME else in_one_line(name)


class BackfillDecisionSpec(Model):
    """The decision, who made it and why. Cannot change."""

    backfill: Name
    """Name of the Backfill."""
    result: ResultId
    """ID of the result that the decision applies to: ``status.result`` of the Backfill when the
    result was reviewed. A decision about any other result has no effect.
    """
    decision: Verdict
    """``Approve``: publish the result. ``Reject``: do not publish it, which ends the Backfill.
    ``Undo``: restore what the tables held before it was published.
    """
    by: Annotated[
        str, BeforeValidator(_name_in_one_line), Field(min_length=1, max_length=_MOST_NAME)
    ]
    """Name of the user who makes the decision. With the Helm chart's admission policy, it must
    match the user of the request.
    """
    reason: DecisionReason = ""
    """Reason for the decision, shown to others. Required by ``Reject``."""


class BackfillDecision(Model):
    """A person's decision about the result of a Backfill. Created by ``kubectl backfill approve``,
    ``reject`` and ``undo``.
    """

    api_version: Literal["backfill.dev/v1alpha1"] = "backfill.dev/v1alpha1"
    """API version of the resource."""
    kind: Literal["BackfillDecision"] = DECISION_KIND
    """Kind of the resource."""
    metadata: ObjectMeta
    """Standard object metadata. The name is ``decision-RESULT``, so that a result can be approved
    or rejected only once; for ``Undo``, it is ``undo-RESULT-NUMBER``.
    """
    spec: BackfillDecisionSpec
    """The decision."""


def result_id(uid: str, status: BackfillStatus) -> str:
    """Digest of what is staged for all outputs. Another run has another one, even with the same
    plan.
    """
    staged = [(output.name, output.staged_snapshot_id, output.rows) for output in status.outputs]
    parts = json.dumps([uid, status.plan_id, staged])
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def check_reason(verdict: Verdict, reason: str) -> None:
    """Checks the reason that a person gives on the command line.

    Raises:
        BadInput: it is too long, or missing for a rejection.
    """
    if len(reason) > MOST_DECISION_REASON:
        message = f"is {len(reason):,} characters long; the maximum is {MOST_DECISION_REASON:,}"
        raise BadInput(Problem("--reason", message, "shorten it"))
    if verdict is Verdict.REJECT and not reason.strip():
        message = "is empty; say why the result is rejected"
        raise BadInput(Problem("--reason", message))


def decision_name(result: str) -> str:
    """Name of the decision to approve or reject a result."""
    return f"decision-{result}"


def undo_name(result: str, number: int) -> str:
    """Name of the request to undo the publication of a result; a later one has a greater number."""
    return f"undo-{result}-{number}"


def next_undo(status: BackfillStatus) -> int:
    """Number of the next request to undo. Numbers start at 1 and are never reused."""
    return 1 if status.undo is None else status.undo.number + 1


def as_recorded(
    spec: BackfillDecisionSpec, at: datetime, *, verified: bool, number: int = 1
) -> DecisionStatus:
    """A decision as the status records it."""
    return DecisionStatus(
        decision=spec.decision,
        result=spec.result,
        by=spec.by,
        by_verified=verified,
        at=at,
        reason=spec.reason,
        number=number,
    )
