"""The commands on a cluster: they read and change resources, and the operator does the rest."""

import json
import shlex
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from rich.console import Console

from backfill.api.approval import check_goes_on
from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.errors import BackfillError, BadInput, ConflictError, Problem
from backfill.api.manifests.backfill_manifest import load_for_cluster
from backfill.cli.backfill_view import has_failed
from backfill.cli.cluster.advice import removal
from backfill.cli.cluster.connection import OPERATORS_WORKSPACE, Place, is_file, name_of, read
from backfill.cli.cluster.decision_commands import approve_one, reject_one, undo_one
from backfill.cli.cluster.logs import show_log
from backfill.cli.cluster.plan_check import check_file
from backfill.cli.cluster.plan_command import show_plan
from backfill.cli.cluster.status_command import follow_all, follow_one, show_all, show_one
from backfill.cli.commands import Commands, Format, OnACluster
from backfill.cli.exit_status import SUCCEEDED
from backfill.cli.run_end import already_succeeded, exit_status
from backfill.cli.screen import in_words
from backfill.cli.text import say
from backfill.controller.children.child_manifests import render
from backfill.controller.cluster.plan_config_map import application_of
from backfill.controller.cluster.production import read_production
from backfill.kube.client import Cluster
from backfill.kube.resources import BACKFILL, Manifest

_POLL_SECONDS = 0.5
_WAITS = {Reason.BACKING_OFF, Reason.DRIVER_START_BLOCKED}


@dataclass(slots=True)
class ClusterCommands(Commands, OnACluster):
    """The options of all commands. No request is made before a command is called."""

    as_json: bool
    program: str
    namespace: str | None
    context: str | None
    kubeconfig: Path | None

    def place(self, of_file: str | None = None) -> Place:
        """The cluster and the namespace.

        ``of_file`` is the namespace in a manifest, if there is one.

        Raises:
            BackfillError: there is no such context or kubeconfig.
        """
        cluster = Cluster.from_kubeconfig(self.kubeconfig, self.context)
        namespace = self.namespace or of_file
        given = (("-n", namespace), ("--context", self.context), ("--kubeconfig", self.kubeconfig))
        options = "".join(
            f" {option} {shlex.quote(str(value))}" for option, value in given if value
        )
        return Place(cluster, namespace or cluster.namespace, self.program, options)

    def find(self, target: str) -> Backfill:
        place, name = self._located(target)
        return place.find(name)

    def names(self) -> list[str]:
        return [manifest["metadata"]["name"] for manifest in self.place().backfills()]

    def list_(self, *, everywhere: bool = False, watch: bool = False) -> int:
        show = follow_all if watch else show_all
        return show(self.place(), everywhere=everywhere, as_json=self.as_json)

    def status(
        self, target: str | None = None, *, everywhere: bool = False, watch: bool = False
    ) -> int:
        if target is None:
            return self.list_(everywhere=everywhere, watch=watch)
        show = follow_one if watch else show_one
        return show(*self._located(target), as_json=self.as_json)

    def plan(self, target: str, **_: object) -> int:
        place, name = self._located(target)
        if is_file(target):
            return check_file(place, Path(target), as_json=self.as_json)
        return show_plan(place, name, as_json=self.as_json)

    def suspend(self, target: str) -> int:
        def change(place: Place, backfill: Backfill) -> str:
            place.change(backfill, [_suspend(True)])
            resume = place.command("resume", backfill.metadata.name)
            return (
                "stopping after the steps in progress; committed steps are kept."
                f" Resume with: {resume}"
            )

        return self._change_spec(target, change)

    def resume(self, target: str) -> int:
        def change(place: Place, backfill: Backfill) -> str:
            again = [_new_retry()] if has_failed(backfill) else []
            place.change(backfill, [_suspend(False), *again])
            watch = place.command("status", backfill.metadata.name, " --watch")
            return f"resumed; follow it with: {watch}"

        return self._change_spec(target, change)

    def retry(self, target: str) -> int:
        def change(place: Place, backfill: Backfill) -> str:
            name = backfill.metadata.name
            running = find_condition(backfill.status.conditions, ConditionType.RUNNING)
            waits = running is not None and running.reason in _WAITS
            if not waits and not has_failed(backfill):
                see = f"see: {place.command('status', name)}"
                raise BadInput(Problem("", f"{name} has not failed", see))
            place.change(backfill, [_new_retry()])
            resume = f"; it is suspended, resume it with: {place.command('resume', name)}"
            return f"retrying from where it stopped{resume if backfill.spec.suspend else ''}"

        return self._change_spec(target, change)

    def approve(self, target: str, *, reason: str = "") -> int:
        return self._decide(target, partial(approve_one, reason=reason))

    def reject(self, target: str, *, reason: str) -> int:
        return self._decide(target, partial(reject_one, reason=reason))

    def undo(self, target: str, *, reason: str = "", wait: bool = True) -> int:
        return self._decide(target, partial(undo_one, reason=reason, wait=wait))

    def cancel(self, target: str, *, wait: bool = True) -> int:
        place, name = self._located(target)
        uid = place.find(name).metadata.uid
        try:
            place.cluster.delete(BACKFILL, place.namespace, name, uid=uid)
        except ConflictError as error:
            raise BackfillError(
                f"{name} has been created again in the meantime; nothing was changed"
            ) from error
        done = "removal requested, including everything it created except published results"
        if wait:
            _wait_until_gone(place, name, uid, self._out)
            done = "removed"
        say(self._out, f"{name}: {done}")
        if self.as_json:
            removed = {"name": name, "namespace": place.namespace, "removed": wait}
            print(json.dumps(removed))  # noqa: T201
        return SUCCEEDED

    def logs(
        self,
        target: str,
        *,
        follow: bool = False,
        attempt: int | None = None,
        tail: int | None = None,
    ) -> int:
        return show_log(*self._located(target), attempt=attempt, follow=follow, tail=tail)

    def render(self, target: str, *, output: Format = Format.YAML) -> int:
        backfill, application = _next_attempt(*self._located(target), target)
        text = render(backfill, application, backfill.status.workspace or OPERATORS_WORKSPACE)
        if output == Format.JSON:
            items = list(yaml.safe_load_all(text))
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}) + "\n"
        print(text, end="")  # noqa: T201
        return SUCCEEDED

    def _located(self, target: str) -> tuple[Place, str]:
        """Where a Backfill is, and its name."""
        name, of_file = name_of(target)
        return self.place(of_file), name

    @property
    def _out(self) -> Console:
        """Console for messages. With JSON output it is standard error."""
        return Console(stderr=self.as_json)

    def _change_spec(self, target: str, change: Callable[[Place, Backfill], str]) -> int:
        """Changes a Backfill that has not succeeded, and says what that does.

        Raises:
            BadInput: the Backfill is being removed, or was rejected or undone.
        """
        place, name = self._located(target)
        backfill = place.find(name)
        if backfill.metadata.deletion_timestamp is not None:
            raise BadInput(Problem("", f"{name} is being removed"))
        check_goes_on(backfill)
        over = exit_status(backfill) == SUCCEEDED
        say(self._out, already_succeeded(name) if over else f"{name}: {change(place, backfill)}")
        return self._print_state(place, name)

    def _decide(self, target: str, decide: Callable[[Place, str, Console], None]) -> int:
        place, name = self._located(target)
        decide(place, name, self._out)
        return self._print_state(place, name)

    def _print_state(self, place: Place, name: str) -> int:
        return show_one(place, name, as_json=True) if self.as_json else SUCCEEDED


def _next_attempt(place: Place, name: str, target: str) -> tuple[Backfill, Manifest]:
    """The Backfill and its application: from the cluster, or from a file as far as it has them."""
    if is_file(target):
        file = load_for_cluster(Path(target))
        backfill = place.here(file.backfill)
        application = file.application or read_production(place.cluster, backfill)
    else:
        backfill = place.find(name)
        application = application_of(place.cluster, backfill)
    if isinstance(application, Problem):
        raise BadInput(application)
    return backfill, application


def _suspend(wanted: bool) -> Manifest:
    return {"op": "add", "path": "/spec/suspend", "value": wanted}


def _new_retry() -> Manifest:
    return {"op": "add", "path": "/spec/retryNonce", "value": uuid.uuid4().hex}


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
