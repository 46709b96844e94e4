"""The application, from a file or a cluster, and its manifest beside the proposal."""

from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import JsonValue

from backfill.api.errors import BadInput, Problem
from backfill.api.manifests.documents import Document, read_documents
from backfill.api.spark_application import application_name
from backfill.kube.client import Cluster
from backfill.kube.resources import SPARK_APPLICATION

_APPLICATION = "SparkApplication"
_OF_MANIFESTS = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Given:
    """The application that a Backfill is proposed for."""

    document: Document
    base: Path
    """Directory that relative paths of its program's files start from."""
    file: str | None
    """What the file of the application holds, if it is nothing else; None if that is not kept."""
    from_cluster: bool
    """Whether a cluster has it, so that its manifest is not needed."""


def given_application(given: str, main_file: Path | None, namespace: str | None) -> Given:
    """The application in a file, or the one of a cluster with that name. ``main_file`` takes the
    place of its main program.

    Raises:
        BadInput: there is none, the file has none or several, or there is no such main program.
        BackfillError: there is no cluster, or it cannot be asked.
    """
    if main_file is not None and not main_file.is_file():
        fix = "specify the main program on this machine"
        raise BadInput(Problem("--main-file", f"there is no file {main_file}", fix))
    file = Path(given)
    if file.is_file():
        found, text = _of_file(file)
        if main_file is not None:
            found, text = _with_main_program(found, main_file), None
        return Given(found, file.parent, text, from_cluster=False)
    if file.name != given or file.suffix in _OF_MANIFESTS:
        fix = "specify a manifest with the production SparkApplication, or its name"
        raise BadInput(Problem("--application", f"there is no file {given}", fix))
    if main_file is None:
        message = (
            f"there is no file {given}; if it is a SparkApplication on the cluster, --main-file is"
            " also required"
        )
        fix = "specify the manifest, or the main program's file on this machine"
        raise BadInput(Problem("--main-file", message, fix))
    found = _of_cluster(given, namespace)
    # only its image has the files of deps
    there = _with_main_program(found, main_file, "deps")
    return Given(there, Path.cwd(), None, from_cluster=True)


def _of_file(file: Path) -> tuple[Document, str | None]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(Problem("--application", f"{file} cannot be read: {error}")) from None
    documents = read_documents(text, str(file))
    found = [each for each in documents if each.get("kind") == _APPLICATION]
    if len(found) != 1:
        names = ", ".join(map(application_name, found)) or "none"
        raise BadInput(
            Problem(
                "--application",
                f"{file} must contain exactly one {_APPLICATION}; found: {names}",
                "specify a manifest with the production SparkApplication",
            )
        )
    return found[0], text if len(documents) == 1 else None


def _of_cluster(name: str, namespace: str | None) -> Document:
    cluster = Cluster.from_kubeconfig()
    namespace = namespace or cluster.namespace
    try:
        found = cluster.get(SPARK_APPLICATION, namespace, name)
    finally:
        cluster.close()
    if found is None:
        message = (
            f"there is neither a file {name} nor a {_APPLICATION} of that name"
            f" ({SPARK_APPLICATION.group}) in namespace {namespace} of the cluster"
        )
        fix = "specify the production application, and its namespace with --namespace"
        raise BadInput(Problem("--application", message, fix))
    return found


def _with_main_program(document: Document, main_file: Path, *left_out: str) -> Document:
    """The resource with another main program, and without these fields of its spec."""
    given = document.get("spec")
    kept = given.items() if isinstance(given, dict) else ()
    spec = {key: value for key, value in kept if key not in left_out}
    return {**document, "spec": spec | {"mainApplicationFile": str(main_file.resolve())}}


def application_text(given: Given, output: Path | None) -> str:
    """The application's manifest, with paths that are valid where the result is written. Printed
    output is assumed to be kept in the current directory.
    """
    base = given.base.resolve()
    place = Path.cwd() if output is None else output.resolve().parent
    if place == base:
        return given.file or yaml.safe_dump(given.document, sort_keys=False)
    return yaml.safe_dump(_with_paths(given.document, base), sort_keys=False)


def _with_paths(document: Document, base: Path) -> Document:
    """The resource with absolute paths of its program's files."""

    def located(given: JsonValue) -> JsonValue:
        if isinstance(given, list):
            return [located(each) for each in given]
        is_path = isinstance(given, str) and "://" not in given
        return str((base / str(given)).resolve()) if is_path else given

    def with_located(fields: JsonValue, *keys: str) -> JsonValue:
        if not isinstance(fields, dict):
            return fields
        return fields | {key: located(fields[key]) for key in keys if key in fields}

    spec = with_located(document.get("spec"), "mainApplicationFile")
    if isinstance(spec, dict) and "deps" in spec:
        spec = spec | {"deps": with_located(spec["deps"], "pyFiles", "jars")}
    return {**document, "spec": spec}
