"""Commands that change a Backfill on a cluster:
they change its spec, and the operator acts on it.
"""

import time
import uuid

from rich.console import Console

from backfill.api.approval import check_goes_on
from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.errors import BackfillError, BadInput, ConflictError, Problem
from backfill.cli.backfill_view import has_failed
from backfill.cli.cluster.advice import removal
from backfill.cli.cluster.connection import Place, read
from backfill.cli.exit_status import SUCCEEDED
from backfill.cli.run_end import exit_status
from backfill.cli.screen import in_words
from backfill.kube.resources import BACKFILL, Manifest

_POLL_SECONDS = 0.5
_SUSPEND = "/spec/suspend"
_NONCE = "/spec/retryNonce"
_WAITS = {Reason.BACKING_OFF, Reason.DRIVER_START_BLOCKED}


def suspend_one(place: Place, name: str, out: Console) -> None:
    """Requests a stop after the steps in progress."""
    backfill = place.find(name)
    if _over(backfill, out):
        return
    place.change(backfill, [_set(_SUSPEND, True)])
    when = "stopping after the steps in progress; committed steps are kept"
    say(out, f"{name}: {when}. Resume with: {place.command('resume', name)}")


def resume_one(place: Place, name: str, out: Console) -> None:
    """Continues a Backfill that was suspended or that failed."""
    backfill = place.find(name)
    if _over(backfill, out):
        return
    place.change(
        backfill,
        [_set(_SUSPEND, False), *([_set(_NONCE, _nonce())] if has_failed(backfill) else [])],
    )
    say(out, f"{name}: resumed; follow it with: {place.command('status', name, ' --watch')}")


def retry_one(place: Place, name: str, out: Console) -> None:
    """Retries a failed Backfill, or ends the wait for the next attempt."""
    backfill = place.find(name)
    if _over(backfill, out):
        return
    running = find_condition(backfill.status.conditions, ConditionType.RUNNING)
    waits = running is not None and running.reason in _WAITS
    if not waits and not has_failed(backfill):
        raise BadInput(
            Problem("", f"{name} has not failed", f"see: {place.command('status', name)}")
        )
    place.change(backfill, [_set(_NONCE, _nonce())])
    suspended = (
        f"; it is suspended, resume it with: {place.command('resume', name)}"
        if backfill.spec.suspend
        else ""
    )
    say(out, f"{name}: retrying from where it stopped{suspended}")


def cancel_one(place: Place, name: str, out: Console, *, wait: bool) -> None:
    """Deletes a Backfill, and waits until everything that it made is removed."""
    backfill = place.find(name)
    uid = backfill.metadata.uid
    try:
        place.cluster.delete(BACKFILL, place.namespace, name, uid=uid)
    except ConflictError as error:
        raise BackfillError(
            f"{name} has been created again in the meantime; nothing was changed"
        ) from error
    if not wait:
        say(
            out,
            f"{name}: removal requested, including everything it created except published results",
        )
        return
    _wait_until_gone(place, name, uid, out)
    say(out, f"{name}: removed")


def _wait_until_gone(place: Place, name: str, uid: str, out: Console) -> None:
    """Waits for the removal and prints its progress.

    The removal continues if the wait is interrupted.
    """
    last = ""
    while (found := place.look(name)) is not None and found["metadata"]["uid"] == uid:
        stage = removal(read(found))
        if stage is not None and stage.reason == Reason.REMOVAL_FAILED and in_words(stage) != last:
            last = in_words(stage)
            say(out, f"{name}: {last}; waiting for the operator to retry")
        elif not last:
            last = "asked"
            say(
                out,
                f"{name}: stopping, then removing what it created (Ctrl-C stops waiting, but not"
                " the removal)",
            )
        time.sleep(_POLL_SECONDS)


def _over(backfill: Backfill, out: Console) -> bool:
    """Whether the Backfill has succeeded, so that there is nothing to change; prints that.

    Raises:
        BadInput: it is being removed, or was rejected or undone.
    """
    name = backfill.metadata.name
    if backfill.metadata.deletion_timestamp is not None:
        raise BadInput(Problem("", f"{name} is being removed"))
    check_goes_on(backfill)
    if exit_status(backfill) == SUCCEEDED:
        say(
            out,
            f"{name} has already succeeded; there is nothing to do. To run it again,"
            " cancel it first or give it another name.",
        )
        return True
    return False


def _nonce() -> str:
    return uuid.uuid4().hex


def _set(path: str, value: object) -> Manifest:
    return {"op": "add", "path": path, "value": value}


def say(out: Console, text: str) -> None:
    """Prints a message as it is."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)
