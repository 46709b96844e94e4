"""The result of a run for programs: one JSON document on one line."""

import json

from backfill.api.backfill import Backfill
from backfill.api.status import Cost
from backfill.cli.backfill_view import in_order
from backfill.cli.text import lasted


def result(backfill: Backfill) -> dict[str, object]:
    """The result so far. All fields are present, even without a value."""
    status, progress = backfill.status, backfill.status.progress
    ended = status.finished_at or max(
        (a.finished_at for a in status.attempts if a.finished_at), default=None
    )
    return {
        "name": backfill.metadata.name,
        "planId": status.plan_id,
        "steps": progress.steps,
        "rowsRead": progress.rows_read,
        "rowsDroppedLate": progress.rows_dropped_late,
        "rowsArrivedLate": progress.rows_arrived_late,
        "openAtEnd": progress.open_at_end,
        "durationSeconds": (
            round(lasted(status.started_at, ended), 3) if ended and status.started_at else None
        ),
        "cost": (status.cost or Cost()).model_dump(
            mode="json", by_alias=True, exclude={"counted_until"}
        ),
        "sources": [
            source.model_dump(
                mode="json", by_alias=True, include={"name", "files", "rows", "bytes", "watermark"}
            )
            for source in status.sources
        ],
        "outputs": [
            output.model_dump(
                mode="json",
                by_alias=True,
                include={
                    "name",
                    "table",
                    "branch",
                    "rows",
                    "open_at_end",
                    "snapshot_id",
                    "undo_snapshot_id",
                    "exported",
                    "execution",
                    "execution_reason",
                    "match",
                },
            )
            for output in status.outputs
        ],
        "handOff": status.hand_off.to_manifest() if status.hand_off else None,
        "conditions": [condition.to_manifest() for condition in in_order(status.conditions)],
        "maxObservedMisalignmentSeconds": progress.max_observed_misalignment_seconds,
    }


def result_line(backfill: Backfill) -> str:
    """The document as it is printed."""
    return json.dumps(result(backfill), separators=(",", ":"))
