"""Says what a backfill would make of programs: what is redirected, what is refused, and what a
person has to look at.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from backfill.api.errors import BackfillError, BadInput, Problem
from backfill.api.manifests.documents import Document
from backfill.api.quantities import count
from backfill.api.redaction import redact
from backfill.api.spark_application import Application, read_application
from backfill.cli.exit_status import BAD_INPUT, FAILED, SUCCEEDED, WAITS
from backfill.cli.proposal.application import given_application
from backfill.cli.text import say
from backfill.iceberg.spark_catalogs import open_catalogs_of
from backfill.protocol.survey_result import (
    KINDS,
    Survey,
    SurveyedInput,
    SurveyedProblem,
    SurveyedQuery,
)

Verdict = Literal["Unmodified", "Delivered", "Doubtful", "Refused", "Failed"]
_IN_WORDS: dict[Verdict, tuple[str, str]] = {
    "Unmodified": ("runs unmodified", "run unmodified"),
    "Delivered": ("runs unmodified with publish.mode: Deliver", "with publish.mode: Deliver"),
    "Doubtful": ("needs a look", "to look at"),
    "Refused": ("is refused", "refused"),
    "Failed": ("could not be checked", "not checked"),
}
"""Of one program, and of several."""
_STATUS: dict[Verdict, int] = {
    "Failed": FAILED,
    "Refused": BAD_INPUT,
    "Doubtful": WAITS,
    "Delivered": SUCCEEDED,
    "Unmodified": SUCCEEDED,
}
"""By verdict, the exit status; the first one of these that a program has counts."""


_OF_PROBLEMS: dict[Verdict, str] = {"Failed": "failed ", "Refused": "refused"}
"""What begins the line of a problem, by the program's verdict."""


@dataclass(frozen=True, slots=True)
class CheckedProblem:
    """What a backfill refuses to do at once."""

    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """A query of a program."""

    name: str | None
    reads: Sequence[str]
    """Names of its inputs."""
    writes: Sequence[str]
    """In words."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a backfill would make of a program."""

    program: str
    verdict: Verdict
    reads: Sequence[str] = ()
    """Its streams, in words."""
    queries: Sequence[CheckedQuery] = ()
    problems: Sequence[CheckedProblem] = ()
    """What is refused, or has to be delivered."""
    doubts: Sequence[str] = ()
    """What was not seen, and may be refused."""
    run: str | None = None
    """The shortest command that runs it; None if a person has to look at it, or if some queries are
    delivered and others are not.
    """


def check_programs(
    files: Sequence[Path], survey: Callable[[Application], Survey], *, as_json: bool
) -> int:
    """Checks one program after the other, and prints what was found. ``survey`` runs the program of
    an application until its queries start.

    Raises:
        BadInput: a file does not exist, or is no program and no manifest.
    """
    applications = [(str(file), _application(file)) for file in files]
    out, err, verdicts = Console(), Console(stderr=True), list[Verdict]()
    for name, application in applications:
        with err.status(f"running {name} until its queries start"):
            found = _checked(name, application, survey)
        verdicts.append(found.verdict)
        if as_json:
            print(json.dumps(asdict(found)))  # noqa: T201
        else:
            for line in _lines(found):
                say(out, line)
    if len(verdicts) > 1 and not as_json:
        say(out, _summary(verdicts))
    return next(_STATUS[each] for each in _STATUS if each in verdicts)


def _application(file: Path) -> Application:
    """The application of a manifest, or one of nothing but a main program."""
    if not file.is_file():
        fix = "specify a main program, or a manifest with the production SparkApplication"
        raise BadInput(Problem("PROGRAM", f"there is no file {file}", fix))
    if file.suffix != ".py":
        given = given_application(str(file), None, None)
        return read_application(given.document, given.base, "default")
    document: Document = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "program"},
        "spec": {"type": "Python", "mode": "cluster", "mainApplicationFile": file.name},
    }
    return read_application(document, file.parent, "default")


def _checked(
    name: str, application: Application, survey: Callable[[Application], Survey]
) -> Checked:
    open_catalogs_of(application.spark_conf)
    try:
        found = survey(application)
    except BadInput as error:
        return Checked(name, "Refused", problems=list(map(_problem, error.problems)))
    except BackfillError as error:
        return Checked(name, "Failed", problems=[CheckedProblem(redact(str(error)))])
    problems = [_problem(each) for query in found.queries for each in query.problems]
    doubts = [doubt for query in found.queries for doubt in _doubts(query)]
    # what a survey finds in a query is what its own code does
    verdict: Verdict = "Doubtful" if doubts else "Delivered" if problems else "Unmodified"
    return Checked(
        name,
        verdict,
        [
            *map(_input, found.inputs),
            *(f"table {each}, not as a stream" for each in found.static_tables),
        ],
        [CheckedQuery(each.name, each.inputs, list(_writes(each))) for each in found.queries],
        problems,
        doubts,
        _command(name, found) if not doubts else None,
    )


def _command(file: str, found: Survey) -> str | None:
    """The command for a window that a person chooses, like the publish mode of tables."""
    modes = {"Deliver" if each.by_row or each.problems else "MODE" for each in found.queries}
    manifest = "FILE" if file.endswith(".py") else shlex.quote(file)
    (mode, *others) = modes
    command = f"backfill run {manifest} --window START/END --publish {mode}"
    return None if others else command


def _problem(problem: Problem | SurveyedProblem) -> CheckedProblem:
    return CheckedProblem(redact(problem.message), redact(problem.fix))


def _input(read: SurveyedInput) -> str:
    return redact(f"{KINDS[read.kind]} {read.name}")


def _writes(query: SurveyedQuery) -> Iterator[str]:
    for write in query.writes:
        keys = f", by {', '.join(write.keys)}" if write.keys else ""
        yield redact(f"{write.place} ({write.how}{keys})")
    if query.function is None and (place := query.table or query.topic or query.format):
        how = f"{query.format}, {query.output_mode}" if query.format else query.output_mode
        yield redact(f"{place} ({how})")


def _doubts(query: SurveyedQuery) -> Iterator[str]:
    if query.function is None:
        return
    name = f"the function {query.function}"
    if query.error:
        yield redact(f"{name} {query.error}")
    elif query.problems:
        return
    elif query.clients:
        yield (
            f"{name} may use {', '.join(query.clients)}: a backfill refuses what connects to other"
            " systems, unless the query's output has publish.mode: Deliver"
        )
    elif not query.writes:
        yield (
            f"{name} writes nothing of an empty batch or of a row of nulls: what it does with other"
            " rows is unknown"
        )


def _lines(found: Checked) -> Iterator[str]:
    yield f"{found.program}: {_IN_WORDS[found.verdict][0]}"
    for read in found.reads:
        yield f"  reads    {read}"
    for query in found.queries:
        for place in query.writes:
            yield f"  writes   {place}" + (f", query {query.name}" if query.name else "")
    for problem in found.problems:
        yield f"  {_OF_PROBLEMS.get(found.verdict, 'deliver')}  {problem.message}"
        if problem.fix:
            yield f"           to do: {problem.fix}"
    for doubt in found.doubts:
        yield f"  look at  {doubt}"
    if found.run is not None:
        yield f"  to run   {found.run}"


def _summary(verdicts: Sequence[Verdict]) -> str:
    counts = [f"{verdicts.count(each)} {_IN_WORDS[each][1]}" for each in reversed(_STATUS)]
    return f"{count(len(verdicts), 'program')}: {', '.join(counts)}"
