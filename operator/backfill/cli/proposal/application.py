"""The application's manifest: as it is given, and as it stands beside the proposal."""

from pathlib import Path

import yaml
from pydantic import JsonValue

from backfill.api.application import application_name
from backfill.api.errors import BadInput, Problem
from backfill.api.manifests.documents import Document, read_documents

_APPLICATION = "SparkApplication"
_OF_MANIFESTS = (".yaml", ".yml", ".json")


def application_document(given: str) -> tuple[Document, str | None]:
    """The SparkApplication of a file, and the text of the file if it holds nothing else.

    Raises:
        BadInput: there is no such file, or not one SparkApplication in it.
    """
    file = Path(given)
    if not file.is_file():
        fix = "name the manifest of the production application"
        if file.name == given and file.suffix not in _OF_MANIFESTS:
            fix = (
                "for a SparkApplication of a cluster: kubectl get sparkapplication"
                f" {given} -o yaml > {given}.yaml, set mainApplicationFile there to the main"
                " program on this machine, and name that file"
            )
        raise BadInput(Problem("--application", f"there is no file {given}", fix))
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(Problem("--application", f"{file} cannot be read: {error}")) from None
    documents = read_documents(text, given)
    found = [each for each in documents if each.get("kind") == _APPLICATION]
    if len(found) != 1:
        names = ", ".join(map(application_name, found)) or "none"
        raise BadInput(
            Problem(
                "--application",
                f"{file} must hold one {_APPLICATION}; there is {names}",
                "name the manifest of the production application",
            )
        )
    return found[0], text if len(documents) == 1 else None


def application_text(
    document: Document, text: str | None, application: str, output: Path | None
) -> str:
    """The application's manifest, with the paths that it needs where the result is. What is printed
    is taken to be kept in the current directory.
    """
    base = Path(application).resolve().parent
    place = Path.cwd() if output is None else output.resolve().parent
    if place == base:
        return text if text is not None else yaml.safe_dump(document, sort_keys=False)
    return yaml.safe_dump(_with_paths(document, base), sort_keys=False)


def _with_paths(document: Document, base: Path) -> Document:
    """The resource with the paths of its program's files in full."""

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
