"""Every error this project raises on purpose.

BackfillError
├── BadInput                 what the user gave cannot work; carries one Problem per mistake (exit status 2)
│   ├── InvalidManifest      the file or a resource in it (YAML, unknown field, a field's value)
│   ├── InvalidPlanInput     the tables do not allow the plan (missing table, column, statistics, snapshot, rows)
│   ├── SpecChanged          a Backfill of this name, with another spec or program, is there already
│   └── UnsupportedProgram   the application does something a backfill cannot redirect
├── ControllerRunning        another process works on this Backfill
├── PlanCorrupt              a stored plan is lost, or does not match its header
├── CanNotPublish            the result cannot be published as it is, however long one waits
│   ├── PublishConflict      the output table changed inside the window since the backfill began
│   └── ResultLost           what was staged for an output is gone
├── UnknownReferences        it cannot be read which files a table uses, so that none is removed
├── RunFailed                the application failed more often than the failure policy allows
└── ClusterError             the API server did not do what it was asked for (``kube/errors.py``)
"""

# ruff: noqa: N818 - the names say what is wrong; that they are errors is said by raising them

from collections.abc import Sequence
from dataclasses import dataclass


class ConflictError(Exception):
    """What was to be written is not what was read any more. Nothing was written; observe and decide again."""


@dataclass(frozen=True)
class Problem:
    """One mistake: where it is, what stands there, and what to do about it.

    ``field`` is a path as kubectl prints it (``spec.sources[0].table``), empty when no single field is to blame.
    """

    field: str
    message: str
    fix: str = ""
    may_pass: bool = False
    """Something could not be reached: the same may work later, with nothing changed in the resource."""

    def __str__(self) -> str:
        """The problem in one line."""
        where = f"{self.field}: " if self.field else ""
        return f"{where}{self.message}" + (f"; {self.fix}" if self.fix else "")


class BackfillError(Exception):
    """Base of all deliberate errors."""


class BadInput(BackfillError):
    """What was given cannot work. ``problems`` holds every mistake found, not just the first, and each one once."""

    def __init__(self, problems: Sequence[Problem] | Problem):
        found = (problems,) if isinstance(problems, Problem) else problems
        self.problems: tuple[Problem, ...] = tuple(dict.fromkeys(found))
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @property
    def may_pass(self) -> bool:
        """Whether nothing is wrong but that something could not be reached."""
        return bool(self.problems) and all(problem.may_pass for problem in self.problems)

    def __reduce__(self) -> tuple[type["BadInput"], tuple[tuple[Problem, ...]]]:
        """By its problems, so that it survives the way back from a worker process."""
        return type(self), (self.problems,)


class InvalidManifest(BadInput):
    """The manifest file, or a resource in it, is not well formed."""


class InvalidPlanInput(BadInput):
    """The tables do not allow the plan that the resource asks for."""


class SpecChanged(BadInput):
    """A Backfill of this name exists with another spec, or has begun with another program."""


class UnsupportedProgram(BadInput):
    """The application does something that a backfill cannot redirect."""


class ControllerRunning(BackfillError):
    """Another process works on this Backfill."""


class PlanCorrupt(BackfillError):
    """A stored plan is lost, or does not match its header."""


class CanNotPublish(BackfillError):
    """The result cannot be published as it is, however long one waits."""


class PublishConflict(CanNotPublish):
    """The output table changed inside the window since the backfill began."""


class ResultLost(CanNotPublish):
    """What was staged for an output is gone: only another Backfill can make it again."""


class UnknownReferences(BackfillError):
    """A metadata file of a table cannot be read, so that it is unknown which files the table uses."""


class RunFailed(BackfillError):
    """The application failed more often than the failure policy allows."""


def first_line(error: Exception) -> str:
    """What an error of a library says, in one line; its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
