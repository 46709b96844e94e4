"""From a new resource to a recorded plan."""

from backfill.api.backfill import BackfillSpec, Progress, SourceStatus
from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import BadInput
from backfill.controller.decision import CancelJob, Next, StartJob
from backfill.controller.draft import Draft
from backfill.controller.jobs import PlanJob, PlanResult
from backfill.controller.observed import Observed
from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace

_PLANNED = ConditionType.PLANNED


def plan(observed: Observed, draft: Draft) -> Next:
    """Has the outputs checked and the plan made, then records it. Bad input ends the Backfill."""
    if draft.status.plan_id is not None:
        draft.fail(_PLANNED, Reason.PLANNING_FAILED, f"{observed.plan_error}; cancel this backfill and start over")
        return Next(at_rest=True)
    if observed.obstacles:
        draft.fail_input(_PLANNED, observed.obstacles)
        return Next(at_rest=True)
    draft.condition(_PLANNED, "Unknown", Reason.PLANNING, "reads the metadata of the tables")
    draft.set(workspace=observed.workspace)
    metadata, spec = observed.backfill.metadata, observed.backfill.spec
    place = Workspace(observed.workspace)
    job = PlanJob(metadata.namespace, metadata.name, metadata.uid, spec, place, observed.parallelism)
    state = observed.job
    if state is None or state.job != job:
        return Next(actions=(StartJob(job),))
    if state.phase == "Running":
        return Next()
    if state.phase == "Failed":
        _record_failure(draft, state.error)
        return Next(actions=(CancelJob(),), at_rest=True)
    _record(draft, state.result)
    _say_what_is_not_validated(observed.backfill.spec, draft)
    return Next(requeue_seconds=0)


def _record_failure(draft: Draft, error: Exception | None) -> None:
    if isinstance(error, BadInput):
        draft.fail_input(_PLANNED, error.problems)
    else:
        draft.fail(_PLANNED, Reason.PLANNING_FAILED, str(error))


def _record(draft: Draft, result: object) -> None:
    if not isinstance(result, PlanResult):
        raise TypeError(f"a plan job gave {type(result).__name__}")
    header = result.header
    draft.set(
        plan_id=header.plan_id,
        progress=Progress(steps=header.steps),
        sources=expected(header),
        outputs=result.outputs,
    )
    message = f"{header.steps:,} steps, {header.rows:,} rows in {sum(source.files for source in header.sources):,} files"
    draft.condition(_PLANNED, "True", Reason.PLAN_READY, "\n".join((message, *header.warnings)))


def _say_what_is_not_validated(spec: BackfillSpec, draft: Draft) -> None:
    unchecked = ", ".join(output.name for output in spec.outputs if output.validate_ is not None)
    if unchecked:
        message = f"this version does not compare results with production; not validated: {unchecked}"
        draft.condition(ConditionType.VALIDATED, "False", Reason.NOT_VALIDATED, message)


def expected(header: PlanHeader) -> tuple[SourceStatus, ...]:
    """The sources before anything is read."""
    return tuple(
        SourceStatus(name=source.name, files=source.files, rows=source.rows, bytes=source.bytes) for source in header.sources
    )
