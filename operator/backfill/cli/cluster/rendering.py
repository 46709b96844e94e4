"""A preview: what would be created for the next attempt."""

import json
from pathlib import Path

import yaml

from backfill.api.backfill import Backfill
from backfill.api.manifest import load_for_cluster
from backfill.cli.cluster.applications import production
from backfill.cli.cluster.place import Place, is_file
from backfill.cli.ending import SUCCEEDED
from backfill.controller.backends.children import render
from backfill.controller.kubernetes.resources import Manifest


def show_manifests(place: Place, target: str, *, as_json: bool) -> int:
    """Prints the manifests of the next attempt; as JSON in a List, as kubectl does."""
    text = render(*_read(place, target))
    if as_json:
        items = list(yaml.safe_load_all(text))
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}) + "\n"
    print(text, end="")  # noqa: T201
    return SUCCEEDED


def _read(place: Place, target: str) -> tuple[Backfill, Manifest]:
    """The Backfill and its application: from the cluster, or from a file as far as it has them."""
    if not is_file(target):
        backfill = place.find(target)
        return backfill, production(place, place.namespace, backfill.spec.application_ref)
    file = load_for_cluster(Path(target))
    namespace = place.namespace
    metadata = file.backfill.metadata.model_copy(update={"namespace": namespace})
    application = file.application or production(place, namespace, file.backfill.spec.application_ref)
    return file.backfill.model_copy(update={"metadata": metadata}), application
