"""Work that takes longer than a reconcile: it runs in the worker process, one job at a time, and
can be repeated at will.

The modules that do the work are imported where it is done: the controller itself never opens a
table.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Final, Literal, Protocol, Self

from pydantic import Field

from backfill.api.backfill import Backfill
from backfill.api.base import Checked
from backfill.api.errors import BackfillError, BadInput, PlanCorrupt, Problem
from backfill.api.spec import BackfillSpec, Output, Publish, Window
from backfill.api.status import OutputStatus
from backfill.iceberg.failures import reason
from backfill.planning.plan import PlanHeader, plan_directory, read_header
from backfill.planning.progress import PlanningProgress
from backfill.planning.workspace import Workspace, checkpoints

if TYPE_CHECKING:
    from backfill.outputs.result import Result

OnProgress = Callable[[PlanningProgress], None]


class Job(Protocol):
    """Compared by value: the same job is not started twice."""

    def run(self, on_progress: OnProgress) -> object:
        """Does the work and gives what it found out."""


def job_kind(kind: type[Job]) -> str:
    """What jobs of a class do, in a word: plan, recover, verify, settle, publish or discard."""
    return kind.__name__.removesuffix("Job").lower()


MOST_USED_SECONDS: Final = 10_000_000
MOST_USED_BYTES: Final = 2**50
"""What a pod says that it took is added to what all jobs have taken: more than this is no
measurement.
"""


@dataclass(frozen=True, slots=True)
class Used:
    """What a job took, as its process measures it."""

    seconds: Annotated[float, Field(ge=0, le=MOST_USED_SECONDS, allow_inf_nan=False)]
    peak_bytes: Annotated[int, Field(ge=0, le=MOST_USED_BYTES)]
    """The most memory that the process held."""


@dataclass(frozen=True, slots=True)
class JobState:
    """What became of a job."""

    job: Job
    phase: Literal["Running", "Done", "Failed"]
    progress: PlanningProgress | None = None
    """The last progress a plan job told of."""
    waits_for: str = ""
    """What keeps a running job from being done right now, for people: its turn, or a pod that does
    not start.
    """
    result: object = None
    """Of a job that is done."""
    error: Exception | None = None
    """Of a job that failed."""
    used: Used | None = None
    """Of a job that is over, where its process could tell."""


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan, and where the output tables stood before anything was done."""

    header: PlanHeader
    outputs: Checked[OutputStatus]
    doubled: dict[str, Problem] = field(default_factory=dict)
    """By output, what is wrong with an Append of rows that the table was given before: only an
    approval lets it happen.
    """
    warnings: Checked[str] = ()
    """About the outputs."""

    def refused(self, spec: BackfillSpec) -> tuple[Problem, ...]:
        """What nobody is asked to approve."""
        automatic = (
            output.name for output in spec.outputs if output.publish.approval == "Automatic"
        )
        return tuple(self.doubled[name] for name in automatic if name in self.doubled)

    def to_approve(self, spec: BackfillSpec) -> tuple[str, ...]:
        """What whoever approves has to know."""
        refused = self.refused(spec)
        return (
            *(str(problem) for problem in self.doubled.values() if problem not in refused),
            *self.warnings,
        )


@dataclass(frozen=True, slots=True)
class PlanJob:
    """Checks the outputs and makes the plan. The same one as long as nothing is edited that a plan
    is made from, or how.
    """

    namespace: str
    name: str
    uid: str
    spec: BackfillSpec
    """Without what has nothing to do with the plan, see :meth:`of`."""
    workspace: Workspace
    parallelism: int = field(compare=False)
    """Tasks that a step should have work for. It follows from how the Backfill is scaled, and
    scaling does not begin anew.
    """
    dry_run: bool = False
    """Leave every table as it is."""

    @classmethod
    def of(
        cls, backfill: Backfill, workspace: Workspace, parallelism: int, *, dry_run: bool = False
    ) -> Self:
        """The job for a Backfill."""
        metadata, spec = backfill.metadata, _to_plan(backfill.spec)
        return cls(
            metadata.namespace, metadata.name, metadata.uid, spec, workspace, parallelism, dry_run
        )

    def run(self, on_progress: OnProgress) -> PlanResult:
        """The plan; the problems of outputs and sources are reported together.

        Raises:
            BadInput: the tables do not allow it.
        """
        from backfill.outputs.cleanup import discard_earlier
        from backfill.outputs.doubled import doubled_appends
        from backfill.outputs.publish import output_state
        from backfill.outputs.result import Result
        from backfill.outputs.tables import check_outputs
        from backfill.planning.planner import make_plan, protect_snapshots, verify_files

        outputs = self.spec.outputs
        results = [
            Result(self.namespace, self.name, self.uid, plan_id="", output=output.name)
            for output in outputs
        ]
        problems = check_outputs(outputs, results, self.spec.window, self.spec.sources)
        try:
            header = make_plan(
                self.spec, self.workspace, parallelism=self.parallelism, on_progress=on_progress
            )
            verify_files(header, self.workspace)
        except BadInput as error:
            raise BadInput([*error.problems, *problems]) from error
        if problems:
            raise BadInput(problems)
        planned = [replace(result, plan_id=header.plan_id) for result in results]
        doubled, warnings = doubled_appends(outputs, planned, self.spec.window)
        if self.dry_run:
            return PlanResult(header, (), doubled, warnings)
        protect_snapshots(self.spec, header, f"{self.namespace}/{self.name}")
        for output, result in zip(outputs, results, strict=True):
            discard_earlier(output, result)
        bases = [
            output_state(output, result).snapshot_id
            for output, result in zip(outputs, results, strict=True)
        ]
        statuses = (
            OutputStatus(name=output.name, table=output.table, base_snapshot_id=base)
            for output, base in zip(outputs, bases, strict=True)
        )
        return PlanResult(header, tuple(statuses), doubled, warnings)


_PLANNED_FROM = frozenset(
    (
        "application_ref",
        "window",
        "sources",
        "ordering",
        "max_misalignment",
        "outputs",
        "catalogs",
        "planning",
    )
)
"""The fields of a spec that decide what is planned, and where and with what identity."""


def _to_plan(spec: BackfillSpec) -> BackfillSpec:
    """The spec with the default of whatever does not matter until the plan is made."""
    fields = {
        name: info.get_default()
        for name, info in BackfillSpec.model_fields.items()
        if name not in _PLANNED_FROM
    }
    fields["sources"] = tuple(source.model_copy(update={"live": None}) for source in spec.sources)
    fields["outputs"] = tuple(
        output.model_copy(update={"validate_": None, "publish": Publish(mode=output.publish.mode)})
        for output in spec.outputs
    )
    return spec.model_copy(update=fields)


@dataclass(frozen=True, slots=True)
class RecoverJob:
    """Reads the header of a plan from the workspace, where the cluster has lost it."""

    plan_id: str
    workspace: Workspace

    def run(self, on_progress: OnProgress) -> PlanHeader:
        """The header.

        Raises:
            PlanCorrupt: the workspace has lost it, too.
        """
        directory = plan_directory(self.workspace, self.plan_id)
        try:
            header = read_header(directory)
        except FileNotFoundError:
            raise PlanCorrupt(f"it is not in {directory.uri} either") from None
        except ValueError as error:
            raise PlanCorrupt(
                f"in {directory.uri} it cannot be read either: {reason(error)}"
            ) from error
        if header.plan_id != self.plan_id:
            raise PlanCorrupt(f"{directory.uri} holds plan {header.plan_id}")
        return header


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
class StagedOutput:
    """An output, and what the result of one plan for it is known by."""

    namespace: str
    name: str
    uid: str
    plan_id: str
    output: Output
    base_snapshot_id: int | None
    """The table's snapshot before the run."""

    @property
    def result(self) -> "Result":
        """The result."""
        from backfill.outputs.result import Result

        return Result(self.namespace, self.name, self.uid, self.plan_id, self.output.name)


def staged_outputs(backfill: Backfill) -> tuple[StagedOutput, ...]:
    """The outputs of a Backfill, in the order of its spec; nothing is staged before there is a
    plan.
    """
    plan_id, metadata = backfill.status.plan_id, backfill.metadata
    bases = {status.name: status.base_snapshot_id for status in backfill.status.outputs}
    if plan_id is None:
        return ()
    owner = (metadata.namespace, metadata.name, metadata.uid)
    return tuple(
        StagedOutput(*owner, plan_id, output, bases[output.name])
        for output in backfill.spec.outputs
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """What a branch holds of an output."""

    branch: str | None
    rows: int
    rows_outside_window: int


@dataclass(frozen=True, slots=True)
class SettleResult:
    """What is staged, by output."""

    totals: dict[str, Totals]
    left_behind: str = ""
    """Why files of failed tasks could not be removed; empty if there is nothing to say."""


@dataclass(frozen=True, slots=True)
class SettleJob:
    """Counts what is staged and removes the files of failed tasks."""

    staged: tuple[StagedOutput, ...]

    def run(self, on_progress: OnProgress) -> SettleResult:
        """The totals of every output.

        Raises:
            ResultLost: nothing is staged of one, though all steps are committed.
        """
        totals = {staged.output.name: _count(staged) for staged in self.staged}
        left = (_remove_orphans(staged) for staged in self.staged)
        return SettleResult(totals, "\n".join(dict.fromkeys(filter(None, left))))


def _count(staged: StagedOutput) -> Totals:
    from backfill.outputs.publish import output_state
    from backfill.outputs.staging import lost

    state = output_state(staged.output, staged.result)
    if state.batch_id is None and state.published_snapshot_id is None:
        raise lost(staged.output.table, staged.result)
    return Totals(state.branch, state.rows, state.rows_outside_window)


def _remove_orphans(staged: StagedOutput) -> str:
    """Says why they could not be removed: they cost room, not rows, and discarding the result tries
    again.
    """
    from backfill.outputs.cleanup import remove_orphans

    try:
        remove_orphans(staged.output, staged.result, staged.base_snapshot_id)
    except BackfillError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class PublishResult:
    """A published output."""

    output: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class PublishJob:
    """Publishes one output. One that is published already is left as it is."""

    staged: StagedOutput
    window: Window

    def run(self, on_progress: OnProgress) -> PublishResult:
        """The snapshot that holds the result.

        Raises:
            PublishConflict: production changed the window meanwhile.
        """
        from backfill.outputs.publish import publish

        staged = self.staged
        published = publish(staged.output, staged.result, self.window, staged.base_snapshot_id)
        return PublishResult(staged.output.name, published.snapshot_id)


@dataclass(frozen=True, slots=True)
class DiscardJob:
    """Removes everything a Backfill made: branches, staged files, tags, plan, checkpoints."""

    namespace: str
    name: str
    spec: BackfillSpec
    staged: tuple[StagedOutput, ...]
    workspace: Workspace | None

    @classmethod
    def of(cls, backfill: Backfill) -> Self:
        """The job for a Backfill, planned or not."""
        metadata, location = backfill.metadata, backfill.status.workspace
        workspace = Workspace.of(backfill, location) if location else None
        return cls(
            metadata.namespace, metadata.name, backfill.spec, staged_outputs(backfill), workspace
        )

    def run(self, on_progress: OnProgress) -> None:
        """Can be repeated: what is gone already is no error.

        Raises:
            BackfillError: something of an output could not be removed; the rest was.
        """
        from backfill.outputs.cleanup import discard
        from backfill.planning.planner import release_snapshots

        release_snapshots(self.spec, f"{self.namespace}/{self.name}")
        problems = []
        for table in dict.fromkeys(staged.output.table for staged in self.staged):
            mine = [staged for staged in self.staged if staged.output.table == table]
            try:
                discard(
                    table,
                    [staged.result for staged in mine],
                    [staged.base_snapshot_id for staged in mine],
                )
            except BackfillError as error:  # what can be removed goes all the same
                problems.append(error)
        if self.workspace is not None:
            self.workspace.child("plans").remove()
            checkpoints(self.workspace).remove()
            self.workspace.remove_if_empty()
        if problems:
            raise (
                problems[0] if len(problems) == 1 else BackfillError("\n".join(map(str, problems)))
            )
