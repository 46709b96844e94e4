"""Tables, branches, tags and workspaces in memory, and what jobs do with them.

A commit is atomic, as in Iceberg. Its answer may be lost, and it may still be made after the
process that asked for it was killed.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from virtual_time import Violation, World

from backfill.api.errors import (
    BackfillError,
    InvalidPlanInput,
    PlanCorrupt,
    Problem,
    PublishConflict,
    ResultLost,
)
from backfill.api.output import PublishMode
from backfill.api.quantities import to_us
from backfill.api.resolved import Resolved, search_digest
from backfill.api.spec import OrderingPolicy
from backfill.api.status import OutputStatus, WindowLosses
from backfill.controller.jobs.any_job import Job, job_kind
from backfill.controller.jobs.job_messages import Message
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.controller.jobs.kinds.make_plan import PlanJob, PlanResult
from backfill.controller.jobs.kinds.publish import PublishJob, PublishResult
from backfill.controller.jobs.kinds.recover import RecoverJob
from backfill.controller.jobs.kinds.resolve import ResolveJob
from backfill.controller.jobs.kinds.settle import SettleJob, SettleResult, Totals
from backfill.controller.jobs.kinds.undo import UndoJob, UndoResult
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.controller.jobs.staged_outputs import StagedOutput
from backfill.planning.plan import PlanHeader, PlanInputs, Proof, SourceTotals
from backfill.protocol.branches import result_branch

WINDOW_START = datetime(2024, 1, 1, tzinfo=UTC)
SOURCES = ("clicks", "plays")
HOUR_US = 3_600_000_000
MISALIGNMENT_US = 2 * HOUR_US
HANG_SECONDS = 300.0
"""After which a job that hangs is given up."""
LEAST_RETRY_SECONDS = 5.0
"""Less than any job that failed is waited for."""
ROWS = 100
"""Rows of a step."""


@dataclass(frozen=True)
class Commit:
    """A commit to the main branch of a table."""

    snapshot_id: int
    kind: Literal["publish", "undo", "other"]
    uid: str = ""
    steps: tuple[int, ...] = ()
    """Steps that it publishes."""
    undoes: int | None = None


@dataclass
class Branch:
    """A branch with a staged result. Each of its snapshots has an ID."""

    uid: str
    head: int
    steps: list[int] = field(default_factory=list)
    foreign: bool = False
    """Whether something else has written into it."""


@dataclass
class Table:
    """The table of an output."""

    main: list[Commit] = field(default_factory=list)
    branches: dict[str, Branch] = field(default_factory=dict)

    def publication(self, uid: str) -> Commit | None:
        return next((each for each in self.main if (each.kind, each.uid) == ("publish", uid)), None)

    def published_steps(self, uid: str) -> list[int]:
        """The steps of a Backfill that readers find in the table now."""
        undone = {each.undoes for each in self.main}
        return [
            step
            for each in self.main
            if each.uid == uid and each.snapshot_id not in undone
            for step in each.steps
        ]


class SimulatedLake:
    """All tables and workspaces."""

    def __init__(self, world: World, steps: int):
        self._world = world
        self._snapshots = 1000
        self.tables: defaultdict[str, Table] = defaultdict(Table)
        self.checkpoints: dict[str, dict[str, int]] = {}
        """Offset of each query by the URI of the checkpoints."""
        self.delivered: dict[str, dict[str, int]] = {}
        """By the URI of the checkpoints and the output, how many batches are recorded as delivered.
        """
        self.plans: dict[str, str] = {}
        """Uid of the Backfill whose plan a workspace holds."""
        self.excused_until = 0.0
        """Until when a job may be tried again at once, because its Backfill was edited."""
        self.application: dict[str, Any] = {}
        """A spec with what the application reads and writes, for a Backfill that does not say so."""
        self.tags: set[tuple[str, str]] = set()
        """Tables and the Backfills by which they are tagged."""
        self.header = plan_header(steps)
        self.on_publish: list[Callable[[StagedOutput, Branch], None]] = []
        """Called before a result is published."""
        self.on_discard: list[Callable[[str], None]] = []
        """Called with the uid of a Backfill before anything of it is removed."""
        self.away_until = 0.0
        """Until when neither catalog nor store answer jobs."""
        self.first_failure: float | None = None
        """When a job has failed for the first time."""
        self.failed_at: dict[str, float] = {}
        """When a job has last failed, by its kind."""
        self.conflicting: set[str] = set()
        """Tables in whose window something else was committed."""
        self.damaged: set[str] = set()
        """Tables whose branch something else has written into or dropped."""

    def next_snapshot(self) -> int:
        self._snapshots += 1
        return self._snapshots

    def stage(self, table: str, branch: str, uid: str, step: int) -> None:
        """Commits a step to a branch, unless it is there already, as the sink does."""
        found = self.tables[table].branches.get(branch)
        if found is None or found.uid != uid:
            found = self.tables[table].branches[branch] = Branch(uid, 0)
        if found.foreign:
            raise ResultLost(f"the branch of {table} holds something else")
        if step in found.steps:
            return
        if step != len(found.steps):
            raise Violation(f"step {step} was staged after {found.steps}: a step is lost")
        found.steps.append(step)
        found.head = self.next_snapshot()

    def check_unchanged(self, table: str, branch: str, uid: str, snapshot: int) -> None:
        """Whether a branch still has what was approved, as the driver looks before it delivers.

        Raises:
            ResultLost: it has not.
        """
        found = self.tables[table].branches.get(branch)
        if found is None or found.uid != uid or found.head != snapshot:
            raise ResultLost(f"the branch of {table} was changed")

    def left_behind(self, uid: str) -> list[str]:
        """What there still is of a Backfill, apart from what it has published."""
        found = [
            f"branch {name} of {table}"
            for table, content in self.tables.items()
            for name, branch in content.branches.items()
            if branch.uid == uid and not branch.foreign
        ]
        found += [f"checkpoints {uri}" for uri in self.checkpoints if uri.endswith(f"/{uid}")]
        found += [f"plan in {uri}" for uri, owner in self.plans.items() if owner == uid]
        return found + [f"tag on {table}" for table, owner in self.tags if owner == uid]

    def do(self, job: Job) -> object:
        """Does what a job does, at once.

        Raises:
            BackfillError: the job fails.
        """
        if self._world.seconds < self.away_until:
            raise BackfillError("the catalog is away")
        match job:
            case ResolveJob():
                return self._find(job)
            case PlanJob():
                return self._plan(job)
            case RecoverJob(_, workspace):
                if workspace.uri not in self.plans:
                    raise PlanCorrupt(f"it is not in {workspace.uri} either")
                return self.header
            case VerifyJob():
                return None
            case SettleJob():
                return SettleResult({each.output.name: self._count(each) for each in job.staged})
            case PublishJob():
                for other in job.others:
                    self._check(other)
                return PublishResult(job.staged.output.name, self._publish(job.staged))
            case UndoJob():
                return UndoResult({each.output.name: self._undo(each) for each in job.staged})
            case DiscardJob():
                return self._discard(job)
        raise AssertionError(f"nobody asks for a {job_kind(type(job))} job here")

    def _find(self, job: ResolveJob) -> Resolved:
        """What the application reads and writes, without what people decide."""

        def named(place: str) -> list[dict[str, Any]]:
            keys = ("name", "table", "timestampColumn")
            return [{key: each[key] for key in keys} for each in self.application[place]]

        return Resolved.model_validate(
            {
                "foundFor": search_digest(job.backfill.spec),
                "sources": named("sources"),
                "outputs": named("outputs"),
            }
        )

    def _plan(self, job: PlanJob) -> PlanResult:
        self.plans[job.workspace.uri] = job.uid
        for source in job.spec.sources:
            if source.snapshot.protect:
                self.tags.add((source.table, job.uid))
        outputs = []
        for output in job.spec.outputs:
            main = self.tables[output.table].main
            base = main[-1].snapshot_id if main else None
            outputs.append(
                OutputStatus(name=output.name, table=output.table, base_snapshot_id=base)
            )
        return PlanResult(self.header, tuple(outputs))

    def _branch(self, staged: StagedOutput) -> Branch | None:
        branches = self.tables[staged.output.table].branches
        found = branches.get(result_branch(staged.namespace, staged.name))
        if found is not None and found.foreign:
            raise ResultLost(f"the branch of {staged.output.table} holds something else")
        return found if found is not None and found.uid == staged.uid else None

    def _count(self, staged: StagedOutput) -> Totals:
        branch, table = self._branch(staged), self.tables[staged.output.table]
        published = table.publication(staged.uid)
        if branch is None and published is None:
            raise ResultLost(f"{staged.output.table} has no staged result")
        rows = ROWS * len(branch.steps) if branch else 0
        losses = None
        if staged.output.publish.mode is PublishMode.REPLACE:
            losses = WindowLosses(production_rows=rows, result_rows=rows)
        name = result_branch(staged.namespace, staged.name)
        delivers = staged.output.publish.mode is PublishMode.DELIVER
        return Totals(
            name if branch else None,
            rows,
            0,
            branch.head if branch else None,
            losses,
            batches=len(branch.steps) if branch and delivers else None,
        )

    def _check(self, staged: StagedOutput) -> Branch:
        branch, table = self._branch(staged), self.tables[staged.output.table]
        if branch is None:
            raise ResultLost(f"{staged.output.table} has no staged result")
        if staged.staged_snapshot_id not in (None, branch.head):
            raise ResultLost(f"the branch of {staged.output.table} has changed")
        base = staged.base_snapshot_id or 0
        if staged.output.publish.mode is PublishMode.REPLACE and any(
            each.kind == "other" and each.snapshot_id > base for each in table.main
        ):
            raise PublishConflict(f"the window of {staged.output.table} has changed")
        return branch

    def _publish(self, staged: StagedOutput) -> int:
        table = self.tables[staged.output.table]
        before = table.publication(staged.uid)
        if before is not None:
            return before.snapshot_id
        branch = self._check(staged)
        for listener in self.on_publish:
            listener(staged, branch)
        commit = Commit(self.next_snapshot(), "publish", staged.uid, tuple(branch.steps))
        table.main.append(commit)
        self._world.note(f"{staged.output.table}: steps {commit.steps} are published")
        return commit.snapshot_id

    def _undo(self, staged: StagedOutput) -> int:
        table = self.tables[staged.output.table]
        published = table.publication(staged.uid)
        if published is None:
            raise BackfillError(f"{staged.output.table} has nothing to undo")
        found = next((each for each in table.main if each.undoes == published.snapshot_id), None)
        if found is None:
            found = Commit(self.next_snapshot(), "undo", staged.uid, undoes=published.snapshot_id)
            table.main.append(found)
            self._world.note(f"{staged.output.table}: the publication is undone")
        return found.snapshot_id

    def _discard(self, job: DiscardJob) -> None:
        for listener in self.on_discard:
            listener(job.uid)
        for staged in job.staged:
            branches = self.tables[staged.output.table].branches
            name = result_branch(staged.namespace, staged.name)
            if name in branches and not branches[name].foreign:
                del branches[name]
        tagged = {each.table for each in job.spec.sources if each.snapshot.protect}
        for table in (*job.tagged, *tagged):
            self.tags.discard((table, job.uid))
        if job.workspace is not None:
            if self.plans.get(job.workspace.uri) == job.uid:
                del self.plans[job.workspace.uri]
            for uri in [uri for uri in self.checkpoints if uri.endswith(f"/{job.uid}")]:
                del self.checkpoints[uri]
                self.delivered.pop(uri, None)


def plan_header(steps: int) -> PlanHeader:
    """A plan of steps of an hour, of two sources."""
    start = to_us(WINDOW_START)
    inputs = PlanInputs(
        start_us=start,
        end_us=start + steps * HOUR_US,
        policy=OrderingPolicy.WITHIN_LATENESS,
        allowed_lateness_us=0,
        max_misalignment_us=MISALIGNMENT_US,
        target_step_bytes=1,
        parallelism=1,
        sources=(),
    )
    sources = tuple(
        SourceTotals(
            name=name,
            files=steps,
            splits=steps,
            rows=ROWS * steps,
            bytes=steps,
            wide_files=0,
            step_rows=(ROWS,) * steps,
            step_bytes=(1,) * steps,
        )
        for name in SOURCES
    )
    return PlanHeader(
        plan_id=inputs.plan_id(),
        inputs=inputs,
        step_starts_us=tuple(start + step * HOUR_US for step in range(steps)),
        step_ends_us=tuple(start + (step + 1) * HOUR_US for step in range(steps)),
        sources=sources,
        proof=Proof(greatest_disorder_us=0, greatest_misalignment_us=0),
    )


class SimulatedJobProcess:
    """A process that does one job and says how it ended."""

    def __init__(
        self,
        world: World,
        lake: SimulatedLake,
        job: Job,
        actor: str,
        chance: float,
        on_end: Callable[[Message | None], None],
    ):
        """``on_end`` gets the last message; None if the process has vanished without one."""
        self._world = world
        self._lake = lake
        self._job = job
        self._actor = actor
        kind = job_kind(type(job))
        self._site = f"{kind} job"
        waited = world.seconds - lake.failed_at.pop(kind, -math.inf)
        if waited < LEAST_RETRY_SECONDS and world.seconds > lake.excused_until:
            raise Violation(f"the {kind} job is tried again {waited:.0f} s after it failed")
        self._chance = chance
        self._on_end = on_end
        self._killed = False
        world.after(
            world.later(f"{self._site} begins", (1.0, 40.0), chance), self._begin, self._actor
        )

    def kill(self) -> None:
        """Kills the process. What it has asked a catalog for may still be done."""
        self._killed = True

    def _begin(self) -> None:
        if self._killed:
            return
        fate = self._world.pick(
            self._site,
            (
                "succeeds",
                "fails before it did anything",
                "fails after it did everything",
                "vanishes before it did anything",
                "vanishes after it did everything",
                "hangs",
                "finds its input gone for a while",
            ),
            self._chance,
        )
        if fate == "hangs":
            self._world.after(HANG_SECONDS, lambda: self._end(None), self._actor)
            return
        seconds = self._world.later(f"{self._site} takes", (2.0, 25.0, 120.0), self._chance)
        sent = 0.0
        if isinstance(self._job, PublishJob | UndoJob):  # their last request is a commit
            sent = self._world.later(f"{self._site}'s commit", (0.0, 20.0), self._chance)
        self._world.after(seconds, lambda: self._ask(fate, sent), self._actor)

    def _ask(self, fate: str, sent: float) -> None:
        """Sends the request that does the work. From then on the catalog does it, whatever becomes
        of the process.
        """
        if not self._killed:
            self._world.after(sent, lambda: self._do(fate))

    def _do(self, fate: str) -> None:
        lost = BackfillError("the catalog does not answer")
        match fate:
            case "fails before it did anything":
                self._end(Message("Failed", error=lost))
            case "finds its input gone for a while":
                problem = Problem("spec.sources", "the table cannot be opened", may_pass=True)
                self._end(Message("Failed", error=InvalidPlanInput(problem)))
            case "vanishes before it did anything":
                self._end(None)
            case _:
                try:
                    result = self._lake.do(self._job)
                except BackfillError as error:
                    self._end(Message("Failed", error=error))
                    return
                if fate == "fails after it did everything":
                    self._end(Message("Failed", error=lost))
                elif fate == "vanishes after it did everything":
                    self._end(None)
                else:
                    self._end(Message("Done", result=result))

    def _end(self, message: Message | None) -> None:
        if not self._killed:
            self._killed = True
            if message is None or message.kind == "Failed":
                if self._lake.first_failure is None:
                    self._lake.first_failure = self._world.seconds
                self._lake.failed_at[job_kind(type(self._job))] = self._world.seconds
            self._on_end(message)
