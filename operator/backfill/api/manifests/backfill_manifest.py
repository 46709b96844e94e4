"""Reads a manifest file: the Backfill, its application, and every problem of both at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import JsonValue, ValidationError

from backfill.api.backfill import API_VERSION, KIND, Backfill
from backfill.api.base import Model
from backfill.api.errors import BadInput, InvalidManifest, Problem
from backfill.api.forbidden_changes import spec_difference
from backfill.api.hand_off import HandOff
from backfill.api.manifests.documents import Document, read_documents
from backfill.api.manifests.parts import SpecParts
from backfill.api.manifests.problems import did_you_mean, problems_of, read_json
from backfill.api.manifests.spec_rules import check_parts, check_spec
from backfill.api.output import Output
from backfill.api.quantities import parse_duration, to_us
from backfill.api.source import Source
from backfill.api.spark_application import (
    Application,
    application_name,
    metadata_of,
    read_application,
)
from backfill.api.spec import BackfillSpec, CatalogRef, Ordering, Window
from backfill.api.static_table import StaticTable

__all__ = [
    "ForCluster",
    "Manifests",
    "check_spec",
    "load_for_cluster",
    "load_manifests",
    "spec_difference",
]

_Part = TypeVar("_Part", bound=Model)
_APPLICATION_KIND = "SparkApplication"


@dataclass(frozen=True)
class Manifests:
    """Contents of a manifest file."""

    backfill: Backfill
    application: Application | None
    """The SparkApplication that the Backfill refers to; None only if it was not required and is not
    in the file.
    """


def load_manifests(source: Path | str, *, require_application: bool = True) -> Manifests:
    """Reads the Backfill and its application from a file, or from YAML or JSON text.

    Objects of other kinds are ignored.

    Raises:
        InvalidManifest: with every problem found: in the text, in the fields of the Backfill and
            between them, and in the SparkApplication.
    """
    name, text, base = (
        (str(source), _text(source), source.parent)
        if isinstance(source, Path)
        else ("manifest", source, Path())
    )
    documents = read_documents(text, name)
    document = _only_backfill(documents, name)
    problems: list[Problem] = []
    backfill, application = None, None
    try:
        backfill = _backfill(document)
    except BadInput as error:
        problems += error.problems
    try:
        application = _application(documents, document, base, require_application)
    except BadInput as error:
        problems += error.problems
    if problems or backfill is None:
        raise InvalidManifest(problems)
    return Manifests(backfill, application)


def load_application(file: Path, namespace: str) -> Application:
    """The only SparkApplication of a file, which has no Backfill. ``namespace`` is that of an
    application that names none.

    Raises:
        InvalidManifest: with every problem found.
    """
    documents = read_documents(_text(file), str(file))
    kinds = [document.get("kind") for document in documents]
    if kinds.count(_APPLICATION_KIND) != 1 or KIND in kinds:
        raise InvalidManifest(
            Problem(
                "",
                f"{file} must contain exactly one SparkApplication, and no Backfill, to be run"
                " with --window",
                "specify the file of the production SparkApplication, or remove --window",
            )
        )
    return read_application(documents[kinds.index(_APPLICATION_KIND)], file.parent, namespace)


@dataclass(frozen=True)
class ForCluster:
    """Contents of a manifest file for a cluster. The application's files need not be on this
    machine.
    """

    backfill: Backfill
    document: Document
    """The Backfill as it was written."""
    application: Document | None
    """The SparkApplication that it refers to, if the file has it."""


def load_for_cluster(file: Path) -> ForCluster:
    """The Backfill of a file and what it refers to, as resources. Other kinds are ignored.

    Raises:
        InvalidManifest: with every problem found: in the text, in the Backfill's fields and between
            them.
    """
    documents = read_documents(_text(file), str(file))
    document = _only_backfill(documents, str(file))
    backfill = _backfill(document)
    name, version = backfill.spec.application_ref.name, backfill.spec.application_ref.api_version
    referred = (
        each
        for each in documents
        if each.get("kind") == _APPLICATION_KIND and each.get("apiVersion") == version
    )
    return ForCluster(
        backfill,
        document,
        next((each for each in referred if application_name(each) == name), None),
    )


def _text(path: Path) -> str:
    if path.suffix == ".py":
        fix = "specify the file of the production SparkApplication that runs it"
        raise InvalidManifest(Problem("", f"{path} is a program, not a manifest", fix))
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidManifest(Problem("", f"there is no file {path}", "check the path")) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidManifest(
            Problem("", f"{path} cannot be read: {error}", "use a YAML or JSON file in UTF-8")
        ) from None


def _only_backfill(documents: list[Document], name: str) -> Document:
    found = [document for document in documents if document.get("kind") == KIND]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(application_name(document) for document in found)
        raise InvalidManifest(
            Problem("", f"{name} contains {len(found)} Backfills ({names})", "keep one per file")
        )
    kinds = [str(document.get("kind", "none")) for document in documents]
    advice = next((advice for kind in kinds if (advice := did_you_mean(kind, [KIND]))), "")
    holds = f"only {', '.join(kinds)}" if kinds else "and no other resource"
    alone = ", or use run with --window START/END" if _APPLICATION_KIND in kinds else ""
    raise InvalidManifest(
        Problem(
            "kind",
            f"{name} contains no Backfill, {holds}",
            advice or f"add one (apiVersion: {API_VERSION}){alone}",
        )
    )


def _backfill(document: Document) -> Backfill:
    given = {key: value for key, value in document.items() if key != "status"}
    problems = [
        Problem(key, "is missing", f"add {key}: {API_VERSION}")
        for key in ("apiVersion",)
        if key not in given
    ]
    try:
        backfill = read_json(Backfill, given)
    except ValidationError as error:
        problems += problems_of(error, Backfill)
        places = [problem.field for problem in problems]
        problems += [
            rule
            for rule in check_parts(_parts(given.get("spec")))
            if not _within(rule.field, places)
        ]
        raise InvalidManifest(problems) from None
    problems += check_spec(backfill.spec)
    if problems:
        raise InvalidManifest(problems)
    return backfill


def _within(field: str, places: list[str]) -> bool:
    """Whether a field is, or is part of, one that has been reported."""
    return any(field == place or field.startswith((f"{place}.", f"{place}[")) for place in places)


def _parts(spec: JsonValue | None) -> SpecParts:
    """The parts of an invalid spec that can be read."""
    given = spec if isinstance(spec, dict) else {}
    hand_off = given.get("handOff")
    return SpecParts(
        window=_leniently(Window, given.get("window")),
        sources=_each(Source, given.get("sources")),
        static_tables=_each(StaticTable, given.get("staticTables")),
        ordering=_leniently(Ordering, given.get("ordering", {})),
        max_misalignment_us=_duration_us(
            given.get("maxMisalignment", _default("max_misalignment"))
        ),
        outputs=_each(Output, given.get("outputs")),
        ignored_queries=_texts(given.get("ignoredQueries")),
        execution=str(given.get("execution")),
        has_rate=given.get("maxRowsPerSecond") is not None,
        catalogs=_each(CatalogRef, given.get("catalogs")),
        wait_for_input_us=_duration_us(given.get("waitForInput", "0s")),
        hand_off=_leniently(HandOff, hand_off),
        hands_over=hand_off is not None,
        by_time=isinstance(hand_off, dict) and hand_off.get("startingTimestampMargin") is not None,
        application=_name_of(given.get("applicationRef")),
        publish=_text_of(given.get("publish")),
    )


def _name_of(given: JsonValue | None) -> str | None:
    return _text_of(given.get("name")) if isinstance(given, dict) else None


def _text_of(given: JsonValue | None) -> str | None:
    return given if isinstance(given, str) else None


def _texts(given: JsonValue | None) -> tuple[str, ...]:
    return tuple(each for each in given if isinstance(each, str)) if isinstance(given, list) else ()


def _default(field: str) -> Any:
    return BackfillSpec.model_fields[field].default


def _duration_us(given: object) -> int | None:
    try:
        return to_us(parse_duration(given))
    except ValueError:
        return None


def _each(model: type[_Part], items: JsonValue | None) -> tuple[_Part | None, ...]:
    return tuple(_leniently(model, item) for item in items) if isinstance(items, list) else ()


def _leniently(model: type[_Part], given: JsonValue | None) -> _Part | None:
    """A part without its invalid fields, if these are optional."""
    try:
        return read_json(model, given)
    except ValidationError as error:
        wrong = {detail["loc"][0] for detail in error.errors() if detail["loc"]}
        if not isinstance(given, dict) or not wrong & set(given):
            return None
        return _leniently(model, {key: value for key, value in given.items() if key not in wrong})


def _application(
    documents: list[Document], backfill: Document, base: Path, required: bool
) -> Application | None:
    namespace = str(metadata_of(backfill).get("namespace") or "default")
    candidates = [
        document
        for document in documents
        if document.get("kind") == _APPLICATION_KIND
        and metadata_of(document).get("namespace", namespace) == namespace
    ]
    name = _application_ref(backfill)
    if name is None:
        return None
    found = [document for document in candidates if application_name(document) == name]
    if len(found) == 1:
        return read_application(found[0], base, namespace)
    if found:
        raise InvalidManifest(
            Problem(
                "spec.applicationRef.name",
                f'the file has {len(found)} SparkApplications named "{name}"',
                "keep one of them",
            )
        )
    if not required and not candidates:
        return None
    names = [application_name(document) for document in candidates]
    there = f"; namespace {namespace} has {', '.join(names)}" if names else ""
    raise InvalidManifest(
        Problem(
            "spec.applicationRef.name",
            f'the file contains no SparkApplication "{name}" in namespace {namespace}',
            did_you_mean(name, names)
            or f"add the production SparkApplication as another document{there}",
        )
    )


def _application_ref(backfill: Document) -> str | None:
    spec = backfill.get("spec")
    return _name_of(spec.get("applicationRef")) if isinstance(spec, dict) else None
