"""The commands on this machine. Those that continue a Backfill work on it in the foreground."""

import getpass
import json
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
from backfill.api.resolved import resolved_spec
from backfill.api.spark_application import Application
from backfill.api.status import DecisionStatus, Verdict
from backfill.cli.backfill_view import View, attempt_numbered, has_failed
from backfill.cli.check import check_programs
from backfill.cli.commands import DEFAULT_STATE, Commands, OnThisMachine, PublishMode
from backfill.cli.exit_status import FAILED, SUCCEEDED, WAITS
from backfill.cli.local.driver_log import log_of
from backfill.cli.local.foreground_controller import control
from backfill.cli.local.plan_command import show_plan
from backfill.cli.local.target import DEFAULT_NAMESPACE, find, read_file
from backfill.cli.optional_dependencies import SPARK, TABLES, require
from backfill.cli.positions import positions_in
from backfill.cli.result_json import result_line
from backfill.cli.run_end import already_succeeded, exit_status, print_end, waiting_for
from backfill.cli.short_form import short_manifests
from backfill.cli.status_pages import details, listing
from backfill.cli.text import say, warn
from backfill.controller.decisions.result.finished import expires_at
from backfill.controller.local.lock import ControllerLock
from backfill.controller.local.store import LocalStore
from backfill.controller.local.store import stored as stored_in
from backfill.controller.proposing.survey_program import survey_of
from backfill.iceberg.spark_catalogs import open_catalogs_of
from backfill.protocol.controller_liveness import controller_alive

_POLL_SECONDS = 0.1


@dataclass(slots=True)
class LocalCommands(Commands, OnThisMachine):
    """The options of all commands."""

    as_json: bool
    state: Path
    namespace: str | None

    def find(self, target: str) -> Backfill:
        store, backfill = self._found(target)
        open_catalogs_of(store.application().spark_conf | backfill.spec.overrides.spark_conf)
        return backfill

    def names(self) -> list[str]:
        return []  # the shell completes manifest files

    def run(
        self, file: Path, *, window: str | None = None, publish: PublishMode | None = None
    ) -> int:
        """One that has succeeded is left unchanged."""
        require(*TABLES, SPARK)
        if window is None:
            _refuse_publish(publish)
            manifests = read_file(file, self.namespace, require_application=True)
        else:
            manifests = short_manifests(file, window, publish, self.namespace)
        backfill, application = manifests.backfill, manifests.application
        if application is None:
            raise AssertionError("the application was required")
        _refuse_deploy(backfill)
        store = LocalStore(self.state, backfill.metadata.namespace, backfill.metadata.name)
        _make_channel(store, self.state)
        with ControllerLock(store.channel):
            stored = store.load()
            if stored is None:
                store.create(backfill, application)
            else:
                backfill = _completed(backfill, stored)
                self._refuse_changes(store, stored, backfill, application)
                if exit_status(stored) == SUCCEEDED:
                    return self._say_finished(self._without_expired_remains(store, stored))
                _apply(store, stored, backfill, application)
            return self._control(store, positions_in(file))

    def check(self, programs: list[Path]) -> int:
        require(*TABLES, SPARK)
        return check_programs(programs, survey_of, as_json=self.as_json)

    def plan(self, target: str, *, explain: bool = False) -> int:
        return show_plan(
            Path(target), self.namespace, self.state, as_json=self.as_json, explained=explain
        )

    def status(self, target: str | None = None, **_: object) -> int:
        if target is None:
            return self.list_()
        store, backfill = self._found(target)
        if self.as_json:
            print(result_line(backfill))  # noqa: T201
            return SUCCEEDED
        console = Console()
        console.print(details(View(backfill, datetime.now(UTC))))
        if exit_status(backfill) == WAITS and not controller_alive(store.channel):
            waiting = waiting_for(backfill, self._options(store))
            say(console, f"  {waiting}")
        return SUCCEEDED

    def list_(self, **_: object) -> int:
        backfills = [found for store in self._stores() if (found := store.load()) is not None]
        if self.as_json:
            for backfill in backfills:
                print(result_line(backfill))  # noqa: T201
        else:
            none = f"no backfills in {self.state}"
            Console().print(listing(backfills) if backfills else none, crop=False)
        return SUCCEEDED

    def suspend(self, target: str) -> int:
        """Waits for the stop if a process is working on the Backfill."""
        store, stored = self._found(target)
        if exit_status(stored) != SUCCEEDED:
            store.suspend()
            _wait_for_controller(store, _is_suspended)
            stored = store.load() or stored
        if exit_status(stored) == SUCCEEDED:
            return self._say_finished(stored)
        command = f"backfill resume {store.name}{self._options(store)}"
        self._say(f"{store.name}: suspended; resume with: {command}")
        self._print_result(stored)
        return SUCCEEDED

    def resume(self, target: str) -> int:
        store, stored = self._found(target)
        check_goes_on(stored)
        with ControllerLock(store.channel):
            if exit_status(stored) == SUCCEEDED:
                return self._say_finished(stored)
            store.resume()
            return self._control(store)

    def retry(self, target: str) -> int:
        store, stored = self._found(target)
        if not has_failed(stored):
            raise BadInput(Problem("", f"{store.name} has not failed", self._see_status(store)))
        return self.resume(target)

    def logs(
        self,
        target: str,
        *,
        follow: bool = False,
        attempt: int | None = None,
        tail: int | None = None,
    ) -> int:
        store, backfill = self._found(target)
        chosen = attempt_numbered(backfill, attempt, self._see_status(store)).number
        for text in log_of(store, chosen, follow=follow, tail=tail):
            print(text, end="", flush=follow)  # noqa: T201
        return SUCCEEDED

    def approve(self, target: str, *, reason: str = "") -> int:
        return self._decide(target, Verdict.APPROVE, reason)

    def reject(self, target: str, *, reason: str) -> int:
        return self._decide(target, Verdict.REJECT, reason)

    def undo(self, target: str, *, reason: str = "", **_: object) -> int:
        return self._decide(target, Verdict.UNDO, reason)

    def cancel(self, target: str, **_: object) -> int:
        """Has everything removed: by the process that works on the Backfill, or by this one."""
        store, _stored = self._found(target)
        store.request_deletion()
        _wait_for_controller(store, lambda backfill: backfill is None)
        left = store.load()
        if left is not None:
            with ControllerLock(store.channel):
                left = control(store, left, self._out)
        if left is not None:
            outcome = find_condition(left.status.conditions, ConditionType.SUCCEEDED)
            why = outcome.message if outcome else f"{store.name} was not removed"
            raise BackfillError(f"{why}; to drop it without cleaning up, delete {store.directory}")
        self._say(f"{store.name}: removed")
        if self.as_json:
            removed = {"name": store.name, "namespace": store.namespace, "removed": True}
            print(json.dumps(removed))  # noqa: T201
        return SUCCEEDED

    def _found(self, target: str) -> tuple[LocalStore, Backfill]:
        return find(target, self.namespace, self.state)

    def _stores(self) -> list[LocalStore]:
        """The Backfills of the namespace, or of all."""
        found = stored_in(self.state)
        return [store for store in found if self.namespace in (None, store.namespace)]

    @property
    def _out(self) -> Console:
        """Console for progress. With JSON output it is standard error."""
        return Console(stderr=self.as_json)

    def _options(self, store: LocalStore) -> str:
        """Options that a next command needs to find this Backfill."""
        words = [] if self.state == DEFAULT_STATE else ["--state-dir", str(self.state)]
        words += [] if store.namespace == DEFAULT_NAMESPACE else ["-n", store.namespace]
        return "".join(f" {shlex.quote(word)}" for word in words)

    def _see_status(self, store: LocalStore) -> str:
        return f"see: backfill status {store.name}{self._options(store)}"

    def _decide(self, target: str, verdict: Verdict, reason: str) -> int:
        """Approves or rejects the result of a Backfill, or undoes its publication, and waits for
        what follows. Returns 0 if that was done.
        """
        check_reason(verdict, reason)
        store, stored = self._found(target)
        with ControllerLock(store.channel):
            stored = store.load() or stored
            if decided := already(stored, verdict):
                self._say(decided)
            elif why := undecidable(stored, verdict):
                raise BadInput(Problem("", why, self._see_status(store)))
            else:
                store.decide(_decision(stored, verdict, reason))
            if verdict is Verdict.APPROVE:
                return self._control(store)
            ended = control(store, stored, self._out) or stored
        return self._tell_decided(ended, verdict)

    def _tell_decided(self, backfill: Backfill, verdict: Verdict) -> int:
        """Says what became of a rejection, or of a request to undo."""
        undo = backfill.status.undo
        outcome = find_condition(backfill.status.conditions, ConditionType.SUCCEEDED)
        wanted = Reason.UNDONE if verdict is Verdict.UNDO else Reason.REJECTED
        done = outcome is not None and outcome.reason == wanted
        if done and outcome is not None:
            self._say(f"{backfill.metadata.name}: {outcome.message}")
        else:
            why = undo.refused if undo is not None and undo.refused else "the run was interrupted"
            warn(f"error: not {'undone' if verdict is Verdict.UNDO else 'rejected'}: {why}")
        self._print_result(backfill)
        return SUCCEEDED if done else FAILED

    def _refuse_changes(
        self, store: LocalStore, stored: Backfill, wanted: Backfill, application: Application
    ) -> None:
        """Refuses changes that would mix results of different inputs or programs.

        The input cannot change once there is a plan, nor the program once there is an attempt.

        Raises:
            SpecChanged: with every such change.
            BackfillError: the Backfill is being removed.
        """
        name, cancel = store.name, f"backfill cancel {store.name}{self._options(store)}"
        if stored.metadata.deletion_timestamp is not None:
            raise BackfillError(
                f"{name} is being removed; complete the removal first with: {cancel}"
            )
        fix = f"start over with: {cancel}, or give it another metadata.name"
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

    def _without_expired_remains(self, store: LocalStore, stored: Backfill) -> Backfill:
        """Removes what a finished Backfill made if ``ttlAfterFinished`` has passed.

        No process does so earlier.
        """
        due = expires_at(stored)
        if due is None or due > datetime.now(UTC):
            return stored
        return control(store, stored, self._out) or stored

    def _control(self, store: LocalStore, located: Callable[[str], str] = str) -> int:
        backfill = store.load()
        ended = control(store, backfill, self._out) if backfill else None
        if ended is None:
            self._say(f"{store.name}: removed")
            return SUCCEEDED
        err = Console(stderr=True)
        print_end(ended, store, self._out, err, self._options(store), located=located)
        self._print_result(ended)
        return exit_status(ended)

    def _say_finished(self, backfill: Backfill) -> int:
        self._say(already_succeeded(backfill.metadata.name))
        self._print_result(backfill)
        return SUCCEEDED

    def _say(self, text: str) -> None:
        say(self._out, text)

    def _print_result(self, backfill: Backfill) -> None:
        if self.as_json:
            print(result_line(backfill), flush=True)  # noqa: T201


def _refuse_publish(publish: PublishMode | None) -> None:
    if publish is not None:
        fix = "set publish in the Backfill's spec, or add --window and remove the Backfill"
        raise BadInput(Problem("--publish", "requires --window", fix))


def _completed(wanted: Backfill, stored: Backfill) -> Backfill:
    """The Backfill of a file with what was found for its plan, if it leaves that out."""
    found = stored.status.resolved
    if not wanted.spec.is_short or found is None or stored.status.plan_id is None:
        return wanted
    return wanted.model_copy(update={"spec": resolved_spec(wanted.spec, found)})


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
