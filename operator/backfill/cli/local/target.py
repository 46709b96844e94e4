"""Finds the Backfill that a command refers to, and its state directory."""

import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput, InvalidManifest, Problem
from backfill.api.manifests.backfill_manifest import Manifests, load_manifests
from backfill.api.manifests.problems import did_you_mean
from backfill.api.output import Output
from backfill.api.workspace_locations import LOCATION_FORM, LOCATION_PATTERN
from backfill.controller.local.store import LocalStore, stored

DEFAULT_NAMESPACE: Final = "default"
"""Namespace of manifests without one, and where names are looked for."""


def read_file(file: Path, namespace: str | None, *, require_application: bool) -> Manifests:
    """The manifests of a file. A relative workspace or location of an output is relative to the
    file, like its programs.

    Raises:
        InvalidManifest: with every problem found.
    """
    manifests = load_manifests(file, require_application=require_application)
    backfill = manifests.backfill
    spec = backfill.spec
    located = {
        "workspace": _located(spec.workspace, file, "spec.workspace"),
        "outputs": tuple(
            _located_output(output, file, f"spec.outputs[{number}].publish.location")
            for number, output in enumerate(spec.outputs)
        ),
    }
    backfill = backfill.model_copy(update={"spec": spec.model_copy(update=located)})
    if namespace is not None:
        backfill = backfill.model_copy(
            update={"metadata": backfill.metadata.model_copy(update={"namespace": namespace})}
        )
    return Manifests(backfill, manifests.application)


def _located_output(output: Output, file: Path, field: str) -> Output:
    location = _located(output.publish.location, file, field)
    publish = output.publish.model_copy(update={"location": location})
    return output.model_copy(update={"publish": publish})


def _located(location: str | None, file: Path, field: str) -> str | None:
    if location is None or urlsplit(location).scheme:
        return location
    located = str((file.parent / location).resolve())
    if re.fullmatch(LOCATION_PATTERN, located) is None:
        raise InvalidManifest(
            Problem(
                field,
                f'"{location}" resolves to {located}, which is not a valid location',
                LOCATION_FORM,
            )
        )
    return located


def find(target: str, namespace: str | None, state: Path) -> tuple[LocalStore, Backfill]:
    """The stored Backfill of that name, or of the manifest file that it was run from.

    Raises:
        BadInput: there is none.
    """
    name = target
    if Path(target).is_file():
        manifest = load_manifests(Path(target), require_application=False).backfill
        name, namespace = manifest.metadata.name, namespace or manifest.metadata.namespace
    store = LocalStore(state, namespace or DEFAULT_NAMESPACE, name)
    backfill = store.load()
    if backfill is None:
        names = [other.name for other in stored(state) if other.namespace == store.namespace]
        known = did_you_mean(name, names) or (
            f"the namespace has {', '.join(names)}"
            if names
            else "none was run with this --state-dir; for one on a cluster, run kubectl"
            " backfill, or add --context"
        )
        raise BadInput(
            Problem(
                "",
                f'there is no backfill "{name}" in namespace {store.namespace} of {state}',
                known,
            )
        )
    return store, backfill
