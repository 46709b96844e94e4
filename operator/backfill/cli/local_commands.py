"""The commands that change a Backfill on this machine."""

import getpass
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from backfill.api.approval import already, check_goes_on, undecidable
from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.decision import check_reason, next_undo
from backfill.api.errors import BackfillError, BadInput, Problem, SpecChanged
from backfill.api.forbidden_changes import program_difference, spec_difference
from backfill.api.spark_application import Application
from backfill.api.status import DecisionStatus, Verdict
from backfill.cli.cluster_or_local import DEFAULT_STATE
from backfill.cli.exit_status import FAILED, SUCCEEDED
from backfill.cli.foreground_controller import control
from backfill.cli.optional_dependencies import SPARK, TABLES, require
from backfill.cli.result_json import result_line
from backfill.cli.run_end import exit_status, print_end
from backfill.cli.target import DEFAULT_NAMESPACE, find, read_file
from backfill.controller.decisions.finished import expires_at
from backfill.controller.local.lock import ControllerLock
from backfill.controller.local.store import LocalStore
from backfill.protocol.controller_liveness import controller_alive

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Context:
    """Options of all commands."""

    state: Path
    namespace: str | None = None
    as_json: bool = False

    @property
    def out(self) -> Console:
        """Console for progress. With JSON output it is standard error."""
        return Console(stderr=self.as_json)

    def options(self, namespace: str) -> str:
        """Options that a next command needs to find a Backfill of this namespace."""
        words = [] if self.state == DEFAULT_STATE else ["--state-dir", str(self.state)]
        words += [] if namespace == DEFAULT_NAMESPACE else ["-n", namespace]
        return "".join(f" {shlex.quote(word)}" for word in words)


def run_file(context: Context, file: Path) -> int:
    """Runs the Backfill of a file, or continues it. One that has succeeded is left unchanged."""
    require(*TABLES, SPARK)
    manifests = read_file(file, context.namespace, require_application=True)
    backfill, application = manifests.backfill, manifests.application
    if application is None:
        raise AssertionError("the application was required")
    _refuse_deploy(backfill)
    store = LocalStore(context.state, backfill.metadata.namespace, backfill.metadata.name)
    _make_channel(store, context.state)
    with ControllerLock(store.channel):
        stored = store.load()
        if stored is None:
            store.create(backfill, application)
        else:
            _refuse_changes(store, stored, backfill, application, context)
            if exit_status(stored) == SUCCEEDED:
                return _say_finished(context, _without_expired_remains(context, store, stored))
            _apply(store, stored, backfill, application)
        return _control(context, store)


def _refuse_deploy(backfill: Backfill) -> None:
    wanted = backfill.spec.hand_off
    if wanted is not None and wanted.start == "Deploy":
        raise BadInput(
            Problem(
                "spec.handOff.start",
                '"Deploy" creates a SparkApplication, which requires a cluster',
                "use Prepare, and start the application yourself once its checkpoints are written",
            )
        )


def resume_one(context: Context, target: str) -> int:
    """Continues a Backfill in the foreground."""
    return _go_on(context, target, LocalStore.resume)


def decide_one(context: Context, target: str, verdict: Verdict, reason: str) -> int:
    """Approves or rejects the result of a Backfill, or undoes its publication, and waits for what
    follows. Returns 0 if that was done.
    """
    check_reason(verdict, reason)
    store, stored = find(target, context.namespace, context.state)
    with ControllerLock(store.channel):
        stored = store.load() or stored
        decided = already(stored, verdict)
        if not decided:
            if why := undecidable(stored, verdict):
                fix = f"see: backfill status {store.name}{context.options(store.namespace)}"
                raise BadInput(Problem("", why, fix))
            store.decide(_decision(stored, verdict, reason))
        else:
            _say(context, decided)
        if verdict is Verdict.APPROVE:
            return _control(context, store)
        ended = control(store, stored, context.out) or stored
    return _tell_decided(context, ended, verdict)


def _decision(backfill: Backfill, verdict: Verdict, reason: str) -> DecisionStatus:
    status = backfill.status
    if status.result is None:
        raise AssertionError("there is nothing to decide about")
    return DecisionStatus(
        decision=verdict,
        result=status.result,
        by=_user(),
        at=datetime.now(UTC),
        reason=reason,
        number=next_undo(status),
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())


def _tell_decided(context: Context, backfill: Backfill, verdict: Verdict) -> int:
    """Says what became of a rejection, or of a request to undo."""
    undo = backfill.status.undo
    outcome = find_condition(backfill.status.conditions, ConditionType.SUCCEEDED)
    wanted = Reason.UNDONE if verdict is Verdict.UNDO else Reason.REJECTED
    done = outcome is not None and outcome.reason == wanted
    if done and outcome is not None:
        _say(context, f"{backfill.metadata.name}: {outcome.message}")
    else:
        why = undo.refused if undo is not None and undo.refused else "the run was interrupted"
        Console(stderr=True).print(
            f"error: not {'undone' if verdict is Verdict.UNDO else 'rejected'}: {why}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if context.as_json:
        print(result_line(backfill), flush=True)  # noqa: T201
    return SUCCEEDED if done else FAILED


def _go_on(context: Context, target: str, change: Callable[[LocalStore], None]) -> int:
    store, stored = find(target, context.namespace, context.state)
    check_goes_on(stored)
    with ControllerLock(store.channel):
        if exit_status(stored) == SUCCEEDED:
            return _say_finished(context, stored)
        change(store)
        return _control(context, store)


def suspend_one(context: Context, target: str) -> int:
    """Requests a stop, and waits for it if a process is working on the Backfill."""
    store, stored = find(target, context.namespace, context.state)
    if exit_status(stored) != SUCCEEDED:
        store.suspend()
        _wait_for_controller(store, _is_suspended)
        stored = store.load() or stored
    if exit_status(stored) == SUCCEEDED:
        return _say_finished(context, stored)
    command = f"backfill resume {store.name}{context.options(store.namespace)}"
    _say(context, f"{store.name}: suspended; resume with: {command}")
    return SUCCEEDED


def cancel_one(context: Context, target: str) -> int:
    """Has everything removed: by the process that works on the Backfill, or by this one."""
    store, _ = find(target, context.namespace, context.state)
    store.request_deletion()
    _wait_for_controller(store, lambda backfill: backfill is None)
    left = store.load()
    if left is not None:
        with ControllerLock(store.channel):
            left = control(store, left, context.out)
    if left is not None:
        outcome = find_condition(left.status.conditions, ConditionType.SUCCEEDED)
        why = outcome.message if outcome else f"{store.name} was not removed"
        raise BackfillError(f"{why}; to drop it without cleaning up, delete {store.directory}")
    _say(context, f"{store.name}: removed")
    return SUCCEEDED


def _without_expired_remains(context: Context, store: LocalStore, stored: Backfill) -> Backfill:
    """Removes what a finished Backfill made if ``ttlAfterFinished`` has passed.

    No process does so earlier.
    """
    due = expires_at(stored)
    if due is None or due > datetime.now(UTC):
        return stored
    return control(store, stored, context.out) or stored


def _make_channel(store: LocalStore, state: Path) -> None:
    try:
        store.channel.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = Problem(
            "--state-dir",
            f"{state} cannot be used: {error.strerror}",
            "choose a writable directory",
        )
        raise BadInput(problem) from error


def _control(context: Context, store: LocalStore) -> int:
    backfill = store.load()
    ended = control(store, backfill, context.out) if backfill else None
    if ended is None:
        _say(context, f"{store.name}: removed")
        return SUCCEEDED
    print_end(ended, store, context.out, Console(stderr=True), context.options(store.namespace))
    return _end(context, ended)


def _say_finished(context: Context, backfill: Backfill) -> int:
    name = backfill.metadata.name
    _say(
        context,
        f"{name} has already succeeded; there is nothing to do. To run it again,"
        " cancel it first or give it another name.",
    )
    return _end(context, backfill)


def _say(context: Context, text: str) -> None:
    context.out.print(text, highlight=False, markup=False, soft_wrap=True)


def _end(context: Context, backfill: Backfill) -> int:
    if context.as_json:
        print(result_line(backfill), flush=True)  # noqa: T201
    return exit_status(backfill)


def _refuse_changes(
    store: LocalStore,
    stored: Backfill,
    wanted: Backfill,
    application: Application,
    context: Context,
) -> None:
    """Refuses changes that would mix results of different inputs or programs.

    The input cannot change once there is a plan, nor the program once there is an attempt.

    Raises:
        SpecChanged: with every such change.
        BackfillError: the Backfill is being removed.
    """
    name = stored.metadata.name
    if stored.metadata.deletion_timestamp is not None:
        raise BackfillError(
            f"{name} is being removed; complete the removal first with: backfill cancel"
            f" {name}{context.options(store.namespace)}"
        )
    fix = (
        f"start over with: backfill cancel {name}{context.options(store.namespace)},"
        " or give it another metadata.name"
    )
    changes = spec_difference(stored.spec, wanted.spec) if stored.status.plan_id else []
    if changes:
        changes.append(
            Problem("", f"{name} is already planned; its input can no longer change", fix)
        )
    begun = stored.status.plan_id is not None and stored.status.attempts
    other = program_difference(store.application(), application) if begun else []
    if other:
        other.append(
            Problem("", f"{name} has already started; its program can no longer change", fix)
        )
    if changes or other:
        raise SpecChanged([*changes, *other])


def _apply(store: LocalStore, stored: Backfill, wanted: Backfill, application: Application) -> None:
    """Stores the spec.

    A Backfill that was suspended by command stays suspended until it is resumed, even if the file
    does not suspend it.
    """
    suspend = stored.spec.suspend or wanted.spec.suspend
    store.apply(wanted.spec.model_copy(update={"suspend": suspend}), application)


def _is_suspended(backfill: Backfill | None) -> bool:
    running = (
        find_condition(backfill.status.conditions, ConditionType.RUNNING) if backfill else None
    )
    return running is not None and running.reason == Reason.SUSPENDED


def _wait_for_controller(store: LocalStore, done: Callable[[Backfill | None], bool]) -> None:
    """Waits until the process that runs the Backfill has fulfilled a request, or has ended.

    Returns at once if no process runs it.
    """
    while not done(store.load()) and controller_alive(store.channel):
        time.sleep(_POLL_SECONDS)
