"""Proposes a Backfill for an application: what it reads and writes, where that is kept, and how
much to read around the window.
"""

import shlex
from pathlib import Path
from typing import Any

from rich.console import Console

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError, BadInput, InvalidManifest, Problem, first_line
from backfill.api.manifests.documents import Document
from backfill.api.quantities import count
from backfill.api.redaction import redact
from backfill.api.spark_application import Application, metadata_of, read_application
from backfill.cli.exit_status import SUCCEEDED
from backfill.cli.local.plan_command import dry_run
from backfill.cli.proposal.application import application_text, given_application
from backfill.cli.proposal.manifest import manifest
from backfill.cli.short_form import name_of, window_of
from backfill.cli.text import say
from backfill.controller.proposing.commented import TODO
from backfill.controller.proposing.find_out import Findings, backfill_with, find_out, reach
from backfill.iceberg.spark_catalogs import open_catalogs_of
from backfill.protocol.explanation import ExplainedQuery


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
    stretch, err = window_of(window), Console(stderr=True)
    if output is not None and output.exists():
        raise BadInput(Problem("--output", f"{output} already exists", "choose another file"))
    if output is not None and not output.parent.is_dir():
        problem = f"there is no directory {output.parent}"
        raise BadInput(Problem("--output", problem, "create it, or choose another file"))
    given = given_application(application, main_file, namespace)
    found = read_application(given.document, given.base, namespace or "default")
    open_catalogs_of(found.spark_conf)
    namespace = _namespace(given.document, namespace)
    name = name_of(found.name, stretch)
    with err.status("") as shown:
        findings = find_out(found, stretch, shown.update)
    explained, notes = _explained(name, namespace, findings, found, err)
    spec = findings.spec(explained)
    _parsed(name, namespace, spec)
    notes = [*findings.proposal.unsolved, *findings.problems, *notes]
    written = manifest(name, namespace, spec, notes)
    _write("" if given.from_cluster else application_text(given, output), written, output)
    check = "kubectl backfill plan" if given.from_cluster else "backfill plan --explain"
    _print_next(written, output, check, err)
    return SUCCEEDED


def _namespace(document: Document, wanted: str | None) -> str | None:
    """The namespace of the Backfill, which is that of the application; None if nothing names it."""
    namespace = metadata_of(document).get("namespace")
    if namespace and wanted and wanted != namespace:
        message = f"{wanted} is not the application's namespace, which is {namespace}"
        raise BadInput(Problem("--namespace", message, "remove this option"))
    return str(namespace) if namespace else wanted


def _explained(
    name: str, namespace: str | None, findings: Findings, application: Application, err: Console
) -> tuple[tuple[ExplainedQuery, ...] | None, list[str]]:
    """What the queries depend on if the manifest is used, or why that is unknown."""
    if not findings.proposal.found:
        return None, []
    backfill = _parsed(name, namespace, findings.spec())
    try:
        return reach(backfill, application, lambda wanted, place: dry_run(wanted, place, err)), []
    except BadInput as error:
        return None, [f"backfill plan says: {redact(str(each))}" for each in error.problems]
    except BackfillError as error:
        # the manifest is kept and shared, unlike this screen, and an error may end with a log
        err.print(redact(str(error)), markup=False, highlight=False)
        return None, [f"backfill plan failed: {redact(first_line(error))}"]


def _parsed(name: str, namespace: str | None, spec: dict[str, Any]) -> Backfill:
    """The manifest as it will be read."""
    try:
        return backfill_with(name, namespace, spec)
    except InvalidManifest as error:
        raise BackfillError(f"the proposal would not be valid:\n{error}") from error


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
