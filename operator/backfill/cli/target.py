"""Finds the Backfill that a command refers to, and its state directory."""

from pathlib import Path
from urllib.parse import urlsplit

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput, Problem
from backfill.api.manifests.backfill_manifest import Manifests, load_manifests
from backfill.api.manifests.problems import did_you_mean
from backfill.controller.local.store import LocalStore, stored


def read_file(file: Path, namespace: str | None, *, require_application: bool) -> Manifests:
    """The manifests of a file. A relative workspace is relative to the file, like its programs.

    Raises:
        InvalidManifest: with every problem found.
    """
    manifests = load_manifests(file, require_application=require_application)
    backfill = manifests.backfill
    workspace = backfill.spec.workspace
    if workspace is not None and not urlsplit(workspace).scheme:
        located = str((file.parent / workspace).resolve())
        backfill = backfill.model_copy(
            update={"spec": backfill.spec.model_copy(update={"workspace": located})}
        )
    if namespace is not None:
        backfill = backfill.model_copy(
            update={"metadata": backfill.metadata.model_copy(update={"namespace": namespace})}
        )
    return Manifests(backfill, manifests.application)


def find(target: str, namespace: str | None, state: Path) -> tuple[LocalStore, Backfill]:
    """The stored Backfill of that name, or of the manifest file that it was run from.

    Raises:
        BadInput: there is none.
    """
    name = target
    if Path(target).is_file():
        manifest = load_manifests(Path(target), require_application=False).backfill
        name, namespace = manifest.metadata.name, namespace or manifest.metadata.namespace
    store = LocalStore(state, namespace or "default", name)
    backfill = store.load()
    if backfill is None:
        names = [other.name for other in stored(state) if other.namespace == store.namespace]
        known = did_you_mean(name, names) or (
            f"the namespace has {', '.join(names)}"
            if names
            else "none was run with this --state-dir"
        )
        raise BadInput(
            Problem(
                "",
                f'there is no backfill "{name}" in namespace {store.namespace} of {state}',
                known,
            )
        )
    return store, backfill
