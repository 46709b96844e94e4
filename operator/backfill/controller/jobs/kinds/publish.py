"""Publishing: from the staged result to the output table."""

from dataclasses import dataclass

from backfill.api.errors import CanNotPublish
from backfill.api.spec import Window
from backfill.controller.jobs.job import OnProgress
from backfill.controller.jobs.staged_outputs import StagedOutput


@dataclass(frozen=True, slots=True)
class PublishResult:
    """A published output."""

    output: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class PublishJob:
    """Publishes one output, unless it is published already."""

    staged: StagedOutput
    window: Window
    others: tuple[StagedOutput, ...] = ()
    """Outputs that are published next: if one of them cannot be, none is."""

    def run(self, on_progress: OnProgress) -> PublishResult:
        """Returns the snapshot that holds the result.

        Raises:
            PublishConflict: the window has changed since the backfill began.
        """
        from backfill.outputs.publish import check_publishable, output_state, publish

        staged = self.staged
        before = output_state(staged.output, staged.result).published_snapshot_id
        for other in self.others if before is None else ():
            try:
                check_publishable(
                    other.output,
                    other.result,
                    self.window,
                    other.base_snapshot_id,
                    other.staged_snapshot_id,
                )
            except CanNotPublish as error:
                raise type(error)(
                    f"nothing was published, because output {other.output.name} cannot be: {error}"
                ) from error
        published = publish(
            staged.output,
            staged.result,
            self.window,
            staged.base_snapshot_id,
            staged.staged_snapshot_id,
        )
        return PublishResult(staged.output.name, published.snapshot_id)
