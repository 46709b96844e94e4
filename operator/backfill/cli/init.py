"""Proposes a Backfill for an application: what it reads and writes, where that is kept, and how
much to read around the window.
"""

import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError
from pyiceberg.types import StructType
from rich.console import Console

from backfill.api.backfill import Backfill
from backfill.api.errors import (
    BackfillError,
    BadInput,
    InvalidManifest,
    InvalidPlanInput,
    Problem,
    first_line,
)
from backfill.api.manifests.backfill_manifest import load_manifests
from backfill.api.manifests.documents import Document
from backfill.api.quantities import count, parse_time
from backfill.api.redaction import redact
from backfill.api.spark_application import Application, metadata_of, read_application
from backfill.api.spec import Window
from backfill.cli.exit_status import SUCCEEDED
from backfill.cli.explain_queries import explain
from backfill.cli.local.plan_command import dry_run
from backfill.cli.proposal.application import application_text, given_application
from backfill.cli.proposal.manifest import TODO, About, manifest
from backfill.cli.proposal.name_matching import uniquely_named
from backfill.cli.proposal.proposed import Lake, Proposal
from backfill.cli.proposal.proposed_outputs import outputs_of
from backfill.cli.proposal.proposed_sources import source_of
from backfill.cli.proposal.proposed_times import times
from backfill.cli.survey_program import survey_of
from backfill.cli.text import say
from backfill.iceberg.table_listing import KnownTables
from backfill.planning.lateness_sample import ArrivalLags, measure_lags
from backfill.planning.workspace import Workspace
from backfill.protocol.explanation import ExplainedQuery
from backfill.protocol.survey_result import Survey

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


class _Lake:
    """The tables of the catalogs, with their columns as text. A table that cannot be loaded has
    none, and is among the problems.
    """

    def __init__(self, tables: KnownTables):
        self._tables = tables

    @property
    def names(self) -> Sequence[str]:
        return self._tables.names

    def find(self, written: str) -> str | None:
        return self._tables.find(written)

    def columns(self, name: str) -> Mapping[str, str]:
        try:
            schema = self._tables.load(name).schema()
        except InvalidPlanInput as error:
            if (problem := str(error)) not in self._tables.problems:
                self._tables.problems.append(problem)
            return {}
        return dict(_columns(schema.as_struct()))


def _columns(struct: StructType, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Columns with their types, also the fields of structs, but not what is in lists and maps: that
    is no value of a row.
    """
    for field in struct.fields:
        name = f"{prefix}{field.name}"
        yield name, str(field.field_type)
        if isinstance(field.field_type, StructType):
            yield from _columns(field.field_type, f"{name}.")


def propose_backfill(
    application: str,
    window: str,
    output: Path | None,
    namespace: str | None,
    main_file: Path | None,
) -> int:
    """Writes the manifest to a file or to standard output, behind the application's own unless a
    cluster has that.

    Raises:
        BadInput: with every problem of the arguments, or of the program.
        BackfillError: the program failed.
    """
    stretch, err = _window(window), Console(stderr=True)
    if output is not None and output.exists():
        raise BadInput(Problem("--output", f"{output} already exists", "choose another file"))
    if output is not None and not output.parent.is_dir():
        problem = f"there is no directory {output.parent}"
        raise BadInput(Problem("--output", problem, "create it, or choose another file"))
    given = given_application(application, main_file, namespace)
    found = read_application(given.document, given.base, namespace or "default")
    namespace = _namespace(given.document, namespace)
    about = About(_name_of(found.name, stretch), namespace, found.name, stretch)
    with err.status("running the program until its queries start"):
        survey = survey_of(found, window=stretch)
    tables = KnownTables()
    with err.status("looking for its tables"):
        proposal = propose(survey, _Lake(tables))
        lags, unmeasured = _lags(proposal, tables, stretch)

    def described(explained: Sequence[ExplainedQuery] | None, notes: Sequence[str]) -> str:
        lengths = times(proposal, explained, lags)
        return manifest(about, proposal, lengths, lags, [*notes, *unmeasured])

    explained, notes = _explained(described(None, ()), found, proposal, err)
    written = described(explained, [*tables.problems, *notes])
    _parsed(written)
    _write("" if given.from_cluster else application_text(given, output), written, output)
    check = "kubectl backfill plan" if given.from_cluster else "backfill plan --explain"
    _print_next(written, output, check, err)
    return SUCCEEDED


def propose(survey: Survey, lake: Lake) -> Proposal:
    """The sources and outputs for a program."""
    outputs, ignored, unsolved = outputs_of(survey, lake)
    written = {output.table.value for output in outputs}
    sources = uniquely_named([source_of(each, survey, lake, written) for each in survey.inputs])
    return Proposal(survey, tuple(sources), tuple(outputs), tuple(ignored), tuple(unsolved))


def _window(given: str) -> Window:
    """The window of ``START/END``."""
    fix = "write it as 2021-07-11T00:00:00Z/2021-07-12T00:00:00Z, or as two dates"
    start, slash, end = given.partition("/")
    if not slash:
        raise BadInput(Problem("--window", f'"{given}" is not START/END', fix))
    try:
        moments = [
            parse_time(f"{each}T00:00:00Z" if _DATE.fullmatch(each) else each)
            for each in (start, end)
        ]
    except ValueError as error:
        raise BadInput(Problem("--window", f'"{given}": {error}', fix)) from None
    try:
        return Window(start=moments[0], end=moments[1])
    except ValidationError:
        message = f'"{given}": the end is not after the start'
        raise BadInput(Problem("--window", message, fix)) from None


def _namespace(document: Document, wanted: str | None) -> str | None:
    """The namespace of the Backfill, which is that of the application; None if nothing names it."""
    namespace = metadata_of(document).get("namespace")
    if namespace and wanted and wanted != namespace:
        message = f"{wanted} is not the application's namespace, which is {namespace}"
        raise BadInput(Problem("--namespace", message, "remove this option"))
    return str(namespace) if namespace else wanted


def _name_of(application: str, window: Window) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", application.lower()).strip("-") or "backfill"
    return f"{name[:52].rstrip('-')}-{window.start:%Y-%m-%d}"


def _lags(
    proposal: Proposal, tables: KnownTables, window: Window
) -> tuple[dict[str, ArrivalLags], list[str]]:
    """By source how late its rows arrived, and why that could not be measured."""
    lags, problems = {}, []
    for source in proposal.sources:
        if source.event_column is None or source.timestamp_unit is not None:
            continue
        if not source.found:
            continue
        try:
            table = tables.load(source.table.value)
            found = measure_lags(table, source.event_column, source.timestamp_column.value, window)
        except Exception as error:  # whatever PyIceberg raises for files
            problems.append(
                f"The lateness of rows in {source.table.value} could not be measured:"
                f" {first_line(error)}"
            )
            continue
        if found is not None:
            lags[source.name] = found
    return lags, problems


def _explained(
    text: str, application: Application, proposal: Proposal, err: Console
) -> tuple[tuple[ExplainedQuery, ...] | None, list[str]]:
    """What the queries depend on if the manifest is used, or why that is unknown."""
    if not proposal.found:
        return None, []
    backfill = _parsed(text)
    with tempfile.TemporaryDirectory(prefix="backfill-init-") as directory:
        workspace = Workspace(directory)
        try:
            header = dry_run(backfill, workspace, err)
            with err.status("finding out what results depend on"):
                return explain(backfill, application, header.plan_id, workspace), []
        except BadInput as error:
            return None, [f"backfill plan says: {redact(str(each))}" for each in error.problems]
        except BackfillError as error:
            # the manifest is kept and shared, unlike this screen, and an error may end with a log
            err.print(redact(str(error)), markup=False, highlight=False)
            return None, [f"backfill plan failed: {redact(first_line(error))}"]


def _parsed(text: str) -> Backfill:
    """The manifest as it will be read."""
    try:
        return load_manifests(text, require_application=False).backfill
    except InvalidManifest as error:
        raise BackfillError(f"the proposal would not be valid:\n{error}\n\n{text}") from error


def _write(application: str, written: str, output: Path | None) -> None:
    text = f"{application.rstrip()}\n---\n{written}" if application else written
    if output is None:
        print(text, end="")  # noqa: T201
    else:
        output.write_text(text, encoding="utf-8")


def _print_next(written: str, output: Path | None, check: str, err: Console) -> None:
    open_questions = sum(line.strip().startswith(f"# {TODO}") for line in written.splitlines())
    where = "FILE" if output is None else shlex.quote(str(output))
    left = (
        f"Resolve {count(open_questions, 'TODO line')}, then run"
        if open_questions
        else "Everything was found. Choose publish.mode, then run"
    )
    say(err, f"{left}: {check} {where}")
