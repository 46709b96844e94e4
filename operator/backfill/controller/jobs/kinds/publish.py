"""Publishing: from the staged result to the output table, or to files."""

from dataclasses import dataclass

from backfill.api.errors import CanNotPublish
from backfill.api.output import PublishMode
from backfill.api.spec import Window
from backfill.api.status import ExportStatus
from backfill.controller.jobs.any_job import OnProgress
from backfill.controller.jobs.staged_outputs import StagedOutput


@dataclass(frozen=True, slots=True)
class PublishResult:
    """A published output."""

    output: str
    snapshot_id: int | None = None
    """The snapshot that published it; None if it was exported."""
    exported: ExportStatus | None = None
    """The files that it was exported to; None if it is in the table."""

    def __post_init__(self) -> None:
        """Checks that it says one of the two."""
        if (self.snapshot_id is None) == (self.exported is None):
            raise ValueError("a result is either in its table or in files")


@dataclass(frozen=True, slots=True)
class PublishJob:
    """Publishes one output, unless it is published already."""

    staged: StagedOutput
    window: Window
    others: tuple[StagedOutput, ...] = ()
    """Outputs that are published next: if one of them cannot be, this one is not either."""

    def run(self, on_progress: OnProgress) -> PublishResult:
        """Returns the snapshot that holds the result, or the files.

        Raises:
            PublishConflict: the window has changed since the backfill began.
        """
        from backfill.outputs.export import export
        from backfill.outputs.publication import publish

        staged = self.staged
        for other in self.others if not _is_published(staged) else ():
            try:
                _check(other, self.window)
            except CanNotPublish as error:
                raise type(error)(
                    f"not published, because output {other.output.name} cannot be published:"
                    f" {error}"
                ) from error
        if staged.output.publish.mode is PublishMode.EXPORT:
            exported = export(staged.output, staged.result, staged.staged_snapshot_id)
            return PublishResult(staged.output.name, exported=exported)
        published = publish(
            staged.output,
            staged.result,
            self.window,
            staged.base_snapshot_id,
            staged.staged_snapshot_id,
        )
        return PublishResult(staged.output.name, published.snapshot_id)


def _is_published(staged: StagedOutput) -> bool:
    from backfill.outputs.export import is_exported
    from backfill.outputs.publication import output_state

    if staged.output.publish.mode is PublishMode.EXPORT:
        return is_exported(staged.output, staged.result)
    return output_state(staged.output, staged.result).published_snapshot_id is not None


def _check(staged: StagedOutput, window: Window) -> None:
    from backfill.outputs.export import check_exportable
    from backfill.outputs.publication import check_publishable

    output, result = staged.output, staged.result
    if output.publish.mode is PublishMode.EXPORT:
        check_exportable(output, result, staged.staged_snapshot_id)
    else:
        check_publishable(
            output, result, window, staged.base_snapshot_id, staged.staged_snapshot_id
        )
