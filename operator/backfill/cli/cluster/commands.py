"""The commands on a cluster: they read and change resources, and the operator does the rest."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from rich.console import Console

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput, Problem
from backfill.api.manifests.backfill_manifest import load_for_cluster
from backfill.cli.cluster.change_commands import cancel_one, resume_one, retry_one, suspend_one
from backfill.cli.cluster.connection import OPERATORS_WORKSPACE, Place, is_file, name_of
from backfill.cli.cluster.decision_commands import approve_one, reject_one, undo_one
from backfill.cli.cluster.logs import show_log
from backfill.cli.cluster.plan_check import check_file
from backfill.cli.cluster.plan_command import show_plan
from backfill.cli.cluster.status_command import show_all, show_one
from backfill.cli.cluster.watch_backfills import follow_all, follow_one
from backfill.cli.commands import Commands, Format, OnACluster
from backfill.cli.exit_status import SUCCEEDED
from backfill.controller.children.child_manifests import render
from backfill.controller.cluster.plan_config_map import application_of
from backfill.controller.cluster.production import read_production
from backfill.kube.client import Cluster
from backfill.kube.resources import Manifest


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

    def status(self, target: str | None = None, *, watch: bool = False) -> int:
        if target is None:
            return self.list_(watch=watch)
        show = follow_one if watch else show_one
        return show(*self._located(target), as_json=self.as_json)

    def plan(self, target: str, **_: object) -> int:
        place, name = self._located(target)
        if is_file(target):
            return check_file(place, Path(target), as_json=self.as_json)
        return show_plan(place, name, as_json=self.as_json)

    def suspend(self, target: str) -> int:
        return self._change(target, suspend_one)

    def resume(self, target: str) -> int:
        return self._change(target, resume_one)

    def retry(self, target: str) -> int:
        return self._change(target, retry_one)

    def approve(self, target: str, *, reason: str = "") -> int:
        return self._change(target, partial(approve_one, reason=reason))

    def reject(self, target: str, *, reason: str) -> int:
        return self._change(target, partial(reject_one, reason=reason))

    def undo(self, target: str, *, reason: str = "", wait: bool = True) -> int:
        return self._change(target, partial(undo_one, reason=reason, wait=wait))

    def cancel(self, target: str, *, wait: bool = True) -> int:
        place, name = self._located(target)
        cancel_one(place, name, Console(stderr=self.as_json), wait=wait)
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

    def _change(self, target: str, change: Callable[[Place, str, Console], None]) -> int:
        place, name = self._located(target)
        change(place, name, Console(stderr=self.as_json))
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
