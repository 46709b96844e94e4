"""Delivery of results to the application's own sinks, by an attempt that reads nothing."""

from datetime import datetime

from backfill.api.conditions import ConditionType, Reason
from backfill.api.output import Output
from backfill.api.quantities import count
from backfill.api.status import DeliveryStatus, OutputStatus
from backfill.controller.decisions.actions import Next
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.status_draft import Draft
from backfill.protocol.split_assignment import SplitAssignmentStatus


def deliver(observed: Observed, draft: Draft, outputs: list[Output]) -> Next:
    """Begins to deliver the rows of some outputs."""
    names = {output.name for output in outputs}
    draft.set(
        outputs=tuple(
            _begun(output, observed.now) if output.name in names else output
            for output in draft.status.outputs
        )
    )
    say_delivering(draft)
    return Next(requeue_seconds=0)


def say_delivering(draft: Draft) -> None:
    """Says what is being delivered, and who has approved it."""
    rows = (f"{count(each.rows, 'row')} of {each.name}" for each in draft.status.delivering)
    by = draft.status.decision
    message = f"delivering {', '.join(rows)} to the application's own sink"
    message += f", approved by {by}" if by is not None else ""
    draft.condition(ConditionType.PUBLISHED, "Unknown", Reason.DELIVERING, message)


def to_be_delivered(output: OutputStatus) -> str:
    """What approval of a delivery means."""
    delivery = output.delivery or DeliveryStatus()
    batches = f"{delivery.batches:,} batch{'' if delivery.batches == 1 else 'es'}"
    calls = f"{count(output.rows, 'row')} in {batches}"
    return (
        f"{output.name}: {calls} would be given to the application's own sink, which cannot be"
        " undone"
    )


def with_deliveries(
    outputs: tuple[OutputStatus, ...], report: SplitAssignmentStatus, now: datetime
) -> tuple[OutputStatus, ...]:
    """The outputs with what a driver has reported of their deliveries, which only ever advance."""
    reported = {each.output: each for each in report.deliveries}

    def advanced(output: OutputStatus) -> OutputStatus:
        old, new = output.delivery, reported.get(output.name)
        if old is None or new is None or not old.in_progress or new.delivered < old.delivered:
            return output
        fields = {
            "batches": new.batches,
            "delivered": new.delivered,
            "rows": new.rows,
            "last_batch": new.last_batch,
            "finished_at": now if new.done else None,
        }
        return output.model_copy(update={"delivery": old.model_copy(update=fields)})

    return tuple(map(advanced, outputs))


def _begun(output: OutputStatus, now: datetime) -> OutputStatus:
    delivery = output.delivery or DeliveryStatus()
    return output.model_copy(update={"delivery": delivery.model_copy(update={"started_at": now})})
