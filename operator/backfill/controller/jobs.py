"""Work that takes longer than a turn: it runs in the worker process, one job at a time, and can be repeated at will."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from backfill.api.backfill import Backfill, BackfillSpec, Output, Window
from backfill.api.errors import BadInput
from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace

OnProgress = Callable[[object], None]


class Job(Protocol):
    """Compared by value: the same job is not started twice."""

    def run(self, on_progress: OnProgress) -> object:
        """Does the work and gives what it found out."""


@dataclass(frozen=True, slots=True)
class JobState:
    """What became of a job."""

    job: Job
    phase: Literal["Running", "Done", "Failed"]
    progress: object = None
    """The last progress it told of."""
    result: object = None
    """Of a job that is done."""
    error: Exception | None = None
    """Of a job that failed."""


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan, and where the output tables stood before anything was done."""

    header: PlanHeader
    base_snapshots: Mapping[str, int | None]
    """By output; None for a table without a snapshot."""


@dataclass(frozen=True, slots=True)
class PlanJob:
    """Checks the outputs and makes the plan."""

    spec: BackfillSpec
    workspace: Workspace
    parallelism: int

    def run(self, on_progress: OnProgress) -> PlanResult:
        """The plan; the problems of outputs and sources are reported together.

        Raises:
            BadInput: the tables do not allow it.
        """
        from backfill.outputs.publish import base_snapshot, check_output
        from backfill.planning.planner import make_plan

        problems = [problem for output in self.spec.outputs for problem in check_output(output, self.spec.window)]
        try:
            header = make_plan(self.spec, self.workspace, parallelism=self.parallelism, on_progress=on_progress)
        except BadInput as error:
            raise BadInput([*error.problems, *problems]) from error
        if problems:
            raise BadInput(problems)
        return PlanResult(header, {output.name: base_snapshot(output) for output in self.spec.outputs})


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """Makes sure, before an attempt, that what the plan reads is still there."""

    header: PlanHeader
    attempt: int

    def run(self, on_progress: OnProgress) -> None:
        """Returns if so.

        Raises:
            InvalidPlanInput: a table or snapshot is gone.
        """
        from backfill.planning.planner import verify_snapshots

        verify_snapshots(self.header)


@dataclass(frozen=True, slots=True)
class Staged:
    """What a branch holds."""

    branch: str | None
    rows: int
    rows_outside_window: int


@dataclass(frozen=True, slots=True)
class SettleResult:
    """What the branches hold, by output."""

    staged: Mapping[str, Staged]


@dataclass(frozen=True, slots=True)
class SettleJob:
    """Counts what is staged and removes the files of failed tasks."""

    name: str
    namespace: str
    plan_id: str
    outputs: tuple[Output, ...]

    @classmethod
    def of(cls, backfill: Backfill) -> Self:
        """The job for a Backfill that has a plan."""
        return cls(backfill.metadata.name, backfill.metadata.namespace, required_plan_id(backfill), backfill.spec.outputs)

    def run(self, on_progress: OnProgress) -> SettleResult:
        """The totals of every output."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class PublishResult:
    """A published output."""

    output: str
    snapshot_id: int
    rows: int


@dataclass(frozen=True, slots=True)
class PublishJob:
    """Publishes one output. One that is published already is left as it is."""

    name: str
    namespace: str
    plan_id: str
    output: Output
    window: Window
    base_snapshot_id: int | None

    @classmethod
    def of(cls, backfill: Backfill, output: Output) -> Self:
        """The job for one output of a Backfill that has a plan."""
        bases = {status.name: status.base_snapshot_id for status in backfill.status.outputs}
        metadata = backfill.metadata
        plan_id = required_plan_id(backfill)
        return cls(metadata.name, metadata.namespace, plan_id, output, backfill.spec.window, bases[output.name])

    def run(self, on_progress: OnProgress) -> PublishResult:
        """The snapshot that holds the result.

        Raises:
            PublishConflict: production changed the window meanwhile.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class DiscardJob:
    """Removes everything a Backfill made: branches, staged files, plan, checkpoints."""

    name: str
    namespace: str
    plan_id: str | None
    workspace: Workspace | None
    outputs: tuple[Output, ...]

    @classmethod
    def of(cls, backfill: Backfill) -> Self:
        """The job for a Backfill, planned or not."""
        status, metadata = backfill.status, backfill.metadata
        workspace = Workspace(status.workspace) if status.workspace else None
        return cls(metadata.name, metadata.namespace, status.plan_id, workspace, backfill.spec.outputs)

    def run(self, on_progress: OnProgress) -> None:
        """Can be repeated: what is gone already is no error."""
        raise NotImplementedError


def required_plan_id(backfill: Backfill) -> str:
    """The plan of a Backfill that is past planning."""
    if backfill.status.plan_id is None:
        raise AssertionError("there is no plan yet")
    return backfill.status.plan_id


def checkpoints(workspace: Workspace, plan_id: str) -> Workspace:
    """Where the checkpoints of a plan's queries are; another plan has others."""
    return workspace.child("checkpoints", plan_id)
