"""Previews the objects of the next attempt."""

import json
from pathlib import Path

import yaml

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput, Problem
from backfill.api.manifests.backfill_manifest import load_for_cluster
from backfill.cli.cluster.connection import OPERATORS_WORKSPACE, Place
from backfill.cli.cluster_or_local import is_file
from backfill.cli.exit_status import SUCCEEDED
from backfill.controller.children.child_manifests import render
from backfill.controller.cluster.plan_config_map import application_of
from backfill.controller.cluster.production import read_production
from backfill.kube.resources import Manifest


def show_manifests(place: Place, target: str, *, as_json: bool) -> int:
    """Prints the manifests of the next attempt; with JSON, as a List like kubectl's."""
    backfill, application = _read(place, target)
    text = render(backfill, application, backfill.status.workspace or OPERATORS_WORKSPACE)
    if as_json:
        items = list(yaml.safe_load_all(text))
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}) + "\n"
    print(text, end="")  # noqa: T201
    return SUCCEEDED


def _read(place: Place, target: str) -> tuple[Backfill, Manifest]:
    """The Backfill and its application: from the cluster, or from a file as far as it has them."""
    if not is_file(target):
        backfill = place.find(target)
        return backfill, _found(application_of(place.cluster, backfill))
    file = load_for_cluster(Path(target))
    backfill = place.here(file.backfill)
    return backfill, file.application or _found(read_production(place.cluster, backfill))


def _found(application: Manifest | Problem) -> Manifest:
    if isinstance(application, Problem):
        raise BadInput(application)
    return application
