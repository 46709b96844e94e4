"""Planning: checks the outputs, and makes the plan."""

from dataclasses import dataclass, field
from datetime import timedelta
from itertools import compress
from typing import Self

from backfill.api.backfill import Backfill
from backfill.api.base import Checked
from backfill.api.errors import BadInput, InputAwaited
from backfill.api.output import Publish
from backfill.api.source import Live
from backfill.api.spec import BackfillSpec
from backfill.api.status import OutputStatus
from backfill.controller.jobs.any_job import OnProgress
from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan, and the state of the output tables before anything was written."""

    header: PlanHeader
    outputs: Checked[OutputStatus]
    warnings: Checked[str] = ()
    """Warnings about outputs and data files, which a person must know before approving."""


@dataclass(frozen=True, slots=True)
class PlanJob:
    """Checks the outputs and makes the plan. Two jobs are equal if no field differs that affects
    the plan, or with what identity it is made.
    """

    namespace: str
    name: str
    uid: str
    spec: BackfillSpec
    """The spec with defaults for all fields that do not affect the plan."""
    workspace: Workspace
    parallelism: int = field(compare=False)
    """Number of tasks that a step should have work for. Not compared: planning does not start
    again when the Backfill is scaled.
    """
    dry_run: bool = False
    """Whether to leave all tables unchanged."""
    awaits_input: bool = False
    """Whether to make no plan while rows are missing from the tables."""
    kept_in: str = ""
    """Which cluster or state directory the Backfill is stored in."""

    @classmethod
    def of(
        cls,
        backfill: Backfill,
        workspace: Workspace,
        parallelism: int,
        *,
        dry_run: bool = False,
        awaits_input: bool = False,
    ) -> Self:
        """The job for a Backfill."""
        metadata, spec = backfill.metadata, to_plan(backfill.spec)
        return cls(
            metadata.namespace,
            metadata.name,
            metadata.uid,
            spec,
            workspace,
            parallelism,
            dry_run,
            awaits_input,
            metadata.kept_in,
        )

    def run(self, on_progress: OnProgress) -> PlanResult:
        """Returns the plan. Problems of outputs and sources are reported together.

        Raises:
            InputAwaited: rows are missing from the tables, and are waited for.
            BadInput: the tables do not allow the plan.
        """
        from backfill.outputs.cleanup import discard_earlier
        from backfill.outputs.delivered_batches import is_missing
        from backfill.outputs.earlier_publications import check_overlaps
        from backfill.outputs.output_tables import check_outputs
        from backfill.outputs.publication import output_state
        from backfill.outputs.result_names import Result
        from backfill.planning import workspace_owner
        from backfill.planning.planner import (
            make_plan,
            owner_of,
            protect_snapshots,
            verify_files,
        )

        if not self.dry_run:
            taken = workspace_owner.claim(self.workspace, self.uid, self.kept_in)
            if taken is not None:
                raise BadInput(taken)
        outputs = self.spec.outputs
        owner = (self.namespace, self.name, self.uid)
        results = [Result(*owner, "", output.name, self.kept_in) for output in outputs]
        problems = check_outputs(
            outputs, results, self.spec.window, self.spec.sources, self.workspace.uri
        )
        # of a Backfill that has run, a plan can still be shown
        own = (self.namespace, self.name) if self.dry_run else None
        overlaps = check_overlaps(outputs, self.spec.window, own)
        problems += overlaps.refused
        try:
            header = make_plan(
                self.spec,
                self.workspace,
                parallelism=self.parallelism,
                on_progress=on_progress,
                awaits_input=self.awaits_input,
            )
            warnings = (*overlaps.warnings, *verify_files(header, self.workspace))
        except BadInput as error:
            if isinstance(error, InputAwaited) and not problems:
                raise
            raise BadInput([*error.problems, *problems]) from error
        if problems:
            raise BadInput(problems)
        if self.dry_run:
            return PlanResult(header, (), warnings)
        tagged_by = owner_of(self.namespace, self.name, self.kept_in)
        protect_snapshots(self.spec, header, tagged_by)
        there = [not is_missing(output) for output in outputs]
        for output, result in compress(zip(outputs, results, strict=True), there):
            discard_earlier(output, result)
        bases = [
            output_state(output, result).snapshot_id if is_there else None
            for output, result, is_there in zip(outputs, results, there, strict=True)
        ]
        statuses = (
            OutputStatus(name=output.name, table=output.table, base_snapshot_id=base)
            for output, base in zip(outputs, bases, strict=True)
        )
        return PlanResult(header, tuple(statuses), warnings)


_PLANNED_FROM = frozenset(
    (
        "application_ref",
        "window",
        "sources",
        "static_tables",
        "ordering",
        "max_misalignment",
        "outputs",
        "catalogs",
        "planning",
    )
)
"""Fields of the spec that decide what is planned, where, and with what identity."""


def _to_publish(publish: Publish) -> Publish:
    return Publish(
        mode=publish.mode, location=publish.location, allow_overlap=publish.allow_overlap
    )


def to_plan(spec: BackfillSpec) -> BackfillSpec:
    """The spec with defaults for all fields that do not affect the plan."""
    fields = {
        name: info.get_default()
        for name, info in BackfillSpec.model_fields.items()
        if name not in _PLANNED_FROM
    }
    fields["wait_for_input"] = timedelta()  # its default is a text until it is validated
    fields["sources"] = tuple(
        source.model_copy(update={"live": Live(), "allow_incomplete": False})
        for source in spec.sources
    )
    fields["outputs"] = tuple(
        output.model_copy(update={"publish": _to_publish(output.publish)})
        for output in spec.outputs
    )
    return spec.model_copy(update=fields)
