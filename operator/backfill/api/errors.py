"""Every error that this project raises deliberately.

BackfillError
├── BadInput                 invalid input; carries a Problem for each mistake (exit status 2)
│   ├── InvalidManifest      the file or a resource in it (YAML, unknown field, a field's value)
│   ├── InvalidPlanInput     the tables do not allow the plan (table, column, statistics, snapshot)
│   │   └── InputAwaited     rows are missing from the tables, and are waited for
│   ├── SpecChanged          a Backfill of this name exists with another spec or program
│   └── UnsupportedProgram   the application does something a backfill cannot redirect
│       └── BatchResultsDiffer  batch jobs have computed the same results differently
├── ControllerRunning        another process works on this Backfill
├── PlanCorrupt              a stored plan is lost, or does not match its header
├── CanNotPublish            the result cannot be published as it is; retrying does not help
│   ├── PublishConflict      the output table changed inside the window since the backfill began
│   ├── CanNotUndo           what was published cannot be taken back, as the table is now
│   └── ResultLost           the staged result of an output no longer exists, or lacks rows
├── UnknownReferences        it is unknown which files a table uses, so none is removed
├── ServerUnavailable        a catalog or store cannot answer now, or has broken the connection
├── RunFailed                the application failed more often than the failure policy allows
└── ClusterError             a request to the API server failed (``kube/request_errors.py``)
"""

# ruff: noqa: N818 - the names say what is wrong; that they are errors is said by raising them

from collections.abc import Sequence
from dataclasses import dataclass, replace


class ConflictError(Exception):
    """The object changed since it was read. Nothing was written; observe and decide again."""


@dataclass(frozen=True)
class Problem:
    """One problem of the input: where it is, what is wrong, and how to fix it.

    ``field`` is a path as kubectl prints it (``spec.sources[0].table``), empty if no single field
    is to blame.
    """

    field: str
    message: str
    fix: str = ""
    may_pass: bool = False
    """Whether the problem may go away without a change of the resource, such as a catalog that does
    not answer.
    """
    unavailable: bool = False
    """Whether it may pass because a server has answered that it cannot do it now, or has broken the
    connection.
    """

    def __str__(self) -> str:
        """The problem in one line."""
        where = f"{self.field}: " if self.field else ""
        return f"{where}{self.message}" + (f"; {self.fix}" if self.fix else "")


def grouped(problems: Sequence[Problem]) -> list[str]:
    """The problems in words, once each: a problem that several fields share names them all."""
    fields: dict[Problem, list[str]] = {}
    for problem in problems:
        fields.setdefault(replace(problem, field=""), []).append(problem.field)
    return [
        str(replace(problem, field=", ".join(dict.fromkeys(filter(None, sharing)))))
        for problem, sharing in fields.items()
    ]


class BackfillError(Exception):
    """Base of all deliberate errors."""


class BadInput(BackfillError):
    """Invalid input. ``problems`` has every problem that was found, once each."""

    def __init__(self, problems: Sequence[Problem] | Problem):
        found = (problems,) if isinstance(problems, Problem) else problems
        self.problems: tuple[Problem, ...] = tuple(dict.fromkeys(found))
        super().__init__("\n".join(grouped(self.problems)))

    @property
    def may_pass(self) -> bool:
        """Whether every problem may go away without a change of the resource."""
        return bool(self.problems) and all(problem.may_pass for problem in self.problems)

    @property
    def unavailable(self) -> bool:
        """Whether every problem is that a server is unavailable for a moment."""
        return bool(self.problems) and all(problem.unavailable for problem in self.problems)

    def __reduce__(self) -> tuple[type["BadInput"], tuple[tuple[Problem, ...]]]:
        """Pickles the error by its problems, so that a worker process can return it."""
        return type(self), (self.problems,)


class InvalidManifest(BadInput):
    """The manifest file, or a resource in it, is not well formed."""


class InvalidPlanInput(BadInput):
    """The tables do not allow the plan that the resource asks for."""


class InputAwaited(InvalidPlanInput):
    """Rows are missing from the tables, and no plan is made while they are waited for."""


class NotExtended(BackfillError):
    """A plan stays as it is, because its tables have no newer rows, or these cannot follow."""


class SpecChanged(BadInput):
    """A Backfill of this name exists with another spec, or has begun with another program."""


class UnsupportedProgram(BadInput):
    """The application does something that a backfill cannot redirect."""


class BatchResultsDiffer(UnsupportedProgram):
    """Batch jobs that have computed the same results of a query disagree."""


class ControllerRunning(BackfillError):
    """Another process works on this Backfill."""


class PlanCorrupt(BackfillError):
    """A stored plan is lost, or does not match its header."""


class CanNotPublish(BackfillError):
    """The result cannot be published as it is. Retrying does not help."""


class PublishConflict(CanNotPublish):
    """The output table changed inside the window since the backfill began."""


class CanNotUndo(CanNotPublish):
    """What was published cannot be taken back, as the table is now."""


class ResultLost(CanNotPublish):
    """The staged result of an output no longer exists, or lacks rows for good. Only another
    Backfill can produce it again.
    """


class UnknownReferences(BackfillError):
    """A table's metadata file cannot be read, so it is unknown which files the table uses."""


class ServerUnavailable(BackfillError):
    """A catalog or store cannot answer now, or has broken the connection."""


class NowhereToRun(BackfillError):
    """Nothing can be started any more, because the namespace is being deleted."""


class RunFailed(BackfillError):
    """The application failed more often than the failure policy allows."""


def first_line(error: Exception) -> str:
    """The first line of an error's message; its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
