"""What to do about a Backfill that has failed, by the reason: for conditions, the command line and
its users.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from backfill.api.conditions import Reason

_RETRY: Final = "then set spec.retryNonce to a new value ({retry} does this)"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What a person does next."""

    advice: str
    """One or two sentences; ``{retry}`` is replaced by the command that retries."""
    start_over: str = ""
    """If only a new Backfill helps: what to know before this one is cancelled."""
    in_log: bool = False
    """Whether the driver's log has more details."""


REMEDIES: Final[Mapping[Reason, Remedy]] = MappingProxyType(
    {
        Reason.INVALID_INPUT: Remedy(
            "Correct the problem above. If you change the spec, the Backfill is retried at once;"
            " after any other correction, set spec.retryNonce to a new value ({retry} does this)."
            " If the field can no longer be changed, create a new Backfill."
        ),
        Reason.PLANNING_FAILED: Remedy(
            f"Fix the problem above, {_RETRY}. If the plan itself is lost, delete this Backfill and"
            " create it again."
        ),
        Reason.UNSUPPORTED_PROGRAM: Remedy(
            f"Change the application as described above, {_RETRY}. If the spec must change instead,"
            " create a new Backfill.",
            in_log=True,
        ),
        Reason.PROGRAM_FAILED: Remedy(
            f"Another attempt would fail in the same way: fix the cause, {_RETRY}.",
            in_log=True,
        ),
        Reason.BATCH_RESULTS_DIFFER: Remedy(
            "Another attempt would fail in the same way: delete this Backfill and create it again"
            " with execution: Streaming.",
            start_over=(
                "another attempt would fail in the same way; write execution: Streaming, cancel"
                " this Backfill and apply it again"
            ),
        ),
        Reason.ATTEMPTS_EXHAUSTED: Remedy(
            f"Read the driver's log, fix the cause, {_RETRY}. The Backfill continues after the last"
            " committed step.",
            in_log=True,
        ),
        Reason.PUBLISH_CONFLICT: Remedy(
            "Check what changed the table; to replace it anyway,"
            " delete this Backfill and create it again.",
            start_over=(
                "check what changed the table; to replace it anyway, cancel this Backfill and apply"
                " it again"
            ),
        ),
        Reason.RESULT_LOST: Remedy(
            "The result cannot be recovered: delete this Backfill and create it again. The new one"
            " reads everything again.",
            start_over="the result cannot be recovered; cancel this Backfill and apply it again",
        ),
        Reason.REJECTED: Remedy(
            "A rejection is final: to publish another result, create a new Backfill.",
            start_over="a rejection is final; cancel this Backfill and apply it again",
        ),
        Reason.UNDONE: Remedy(
            "The tables have been restored. To publish again, create a new Backfill.",
            start_over="to publish again, cancel this Backfill and apply it again",
        ),
        Reason.HAND_OFF_FAILED: Remedy(
            "If no other application continues from its checkpoints, set spec.retryNonce to a new"
            " value ({retry} does this) to create the live SparkApplication again."
        ),
        Reason.PUBLISH_FAILED: Remedy(
            f"Fix the problem above, {_RETRY}. Only the publication is repeated."
        ),
    }
)


def remedy(reason: Reason) -> Remedy:
    """The remedy for a reason; empty if there is none."""
    return REMEDIES.get(reason, Remedy(""))
