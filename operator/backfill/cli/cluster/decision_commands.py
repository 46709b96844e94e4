"""Commands that decide about the result of a Backfill on a cluster: each creates a
BackfillDecision, and the operator acts on it.
"""

import time
from typing import Final

from pydantic import ValidationError
from rich.console import Console

from backfill.api.approval import already, undecidable
from backfill.api.backfill import API_VERSION, Backfill
from backfill.api.decision import (
    DECISION_KIND,
    BackfillDecision,
    check_reason,
    decision_name,
    next_undo,
    undo_name,
)
from backfill.api.errors import BackfillError, BadInput, ConflictError, Problem
from backfill.api.manifests.problems import read_json
from backfill.api.status import DecisionStatus, Verdict
from backfill.cli.cluster.connection import Place
from backfill.cli.cluster.status_command import patiently
from backfill.cli.text import say
from backfill.kube.object_names import CLI_MANAGER, owner_reference
from backfill.kube.request_errors import AlreadyExists, ClusterError, Denied, Forbidden
from backfill.kube.resources import DECISION, SELF_REVIEW, Manifest

_POLL_SECONDS: Final = 0.5


def approve_one(place: Place, name: str, out: Console, *, reason: str) -> None:
    """Approves the result that waits."""
    backfill = place.find(name)
    if _decided(place, backfill, Verdict.APPROVE, reason, out):
        watch = place.command("status", name, " --watch")
        say(out, f"{name}: publishing; follow it with: {watch}")


def reject_one(place: Place, name: str, out: Console, *, reason: str) -> None:
    """Rejects the result that waits."""
    backfill = place.find(name)
    if _decided(place, backfill, Verdict.REJECT, reason, out):
        cancel = place.command("cancel", name)
        say(out, f"{name}: rejected, nothing is published; remove the result with: {cancel}")


def undo_one(place: Place, name: str, out: Console, *, reason: str, wait: bool) -> None:
    """Undoes what is published.

    Raises:
        BackfillError: it cannot be undone; the message says why.
    """
    backfill = place.find(name)
    if not _decided(place, backfill, Verdict.UNDO, reason, out):
        return
    if not wait:
        say(out, f"{name}: undo requested; see: {place.command('status', name)}")
        return
    number = next_undo(backfill.status)
    say(out, f"{name}: undoing (Ctrl-C stops waiting, but not the undo)")
    ended = _ended(place, backfill, number)
    if ended.refused:
        raise BackfillError(f"not undone: {ended.refused}")
    say(out, f"{name}: undone")


def _ended(place: Place, asked: Backfill, number: int) -> DecisionStatus:
    """The request to undo once it was carried out or refused.

    Raises:
        BackfillError: the Backfill was removed meanwhile.
    """
    name = asked.metadata.name
    while True:
        backfill = patiently(lambda: place.find(name))
        if backfill.metadata.uid != asked.metadata.uid:
            raise BackfillError(f"{name} was removed and created again in the meantime")
        undo = backfill.status.undo
        if (
            undo is not None
            and undo.number >= number
            and (undo.refused or already(backfill, Verdict.UNDO))
        ):
            return undo
        time.sleep(_POLL_SECONDS)


def _decided(place: Place, backfill: Backfill, verdict: Verdict, reason: str, out: Console) -> bool:
    """Creates the decision. Returns False if the same was decided already; prints that.

    Raises:
        BadInput: there is nothing to decide, somebody has decided otherwise, or the reason does not
            fit.
        BackfillError: a permission is missing.
    """
    check_reason(verdict, reason)
    name = backfill.metadata.name
    if message := already(backfill, verdict):
        say(out, message)
        return False
    if why := undecidable(backfill, verdict):
        raise BadInput(Problem("", why, f"see: {place.command('status', name)}"))
    try:
        by = _user(place)
        place.cluster.create(
            DECISION, _manifest(backfill, verdict, by, reason), manager=CLI_MANAGER
        )
    except AlreadyExists as error:
        return _found(place, backfill, verdict, out, error)
    except Denied:
        raise
    except Forbidden as error:
        raise BackfillError(
            f"{error}; deciding about results requires permission to create backfilldecisions,"
            " which the role backfill-approve grants"
        ) from error
    return True


def _found(
    place: Place, backfill: Backfill, verdict: Verdict, out: Console, error: ClusterError
) -> bool:
    """A decision of somebody else that was first, or of this command if its answer was lost.

    Raises:
        BadInput: it is another decision.
        ConflictError: it cannot be read, or no longer exists.
    """
    called = _name(backfill, verdict)
    try:
        spec = read_json(
            BackfillDecision, place.cluster.get(DECISION, place.namespace, called)
        ).spec
    except ValidationError:
        raise ConflictError(str(error)) from error
    name, message = backfill.metadata.name, f"{spec.by} has already decided: {spec.decision}"
    if spec.backfill != name:
        other = f"{DECISION_KIND} {called} is about {spec.backfill}, and has no effect"
        raise BadInput(Problem("", f"{name}: {other}", "have it deleted, then decide again"))
    if spec.decision != verdict:
        raise BadInput(Problem("", f"{name}: {message}"))
    say(out, f"{name}: {message}")
    return True


def _name(backfill: Backfill, verdict: Verdict) -> str:
    result = str(backfill.status.result)
    if verdict is Verdict.UNDO:
        return undo_name(result, next_undo(backfill.status))
    return decision_name(result)


def _manifest(backfill: Backfill, verdict: Verdict, by: str, reason: str) -> Manifest:
    metadata = backfill.metadata
    owner = owner_reference(metadata.name, metadata.uid) | {
        "controller": False,
        "blockOwnerDeletion": False,  # otherwise some clusters ask for another permission
    }
    return {
        "apiVersion": API_VERSION,
        "kind": DECISION_KIND,
        "metadata": {
            "name": _name(backfill, verdict),
            "namespace": metadata.namespace,
            "ownerReferences": [owner],
        },
        "spec": {
            "backfill": metadata.name,
            "result": backfill.status.result,
            "decision": str(verdict),
            "by": by,
            "reason": reason,
        },
    }


def _user(place: Place) -> str:
    """The name by which the API server knows this user."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}}
    answer = place.cluster.create(SELF_REVIEW, review)
    return str(answer["status"]["userInfo"]["username"])
