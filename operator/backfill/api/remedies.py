"""What to do about a Backfill that has failed, by the reason: for conditions, the command line and
its users.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from backfill.api.conditions import Reason

_RETRY: Final = "then give spec.retryNonce a new value ({retry} does)"


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
            "Correct what is named above. A change of the spec is tried at once; after any other,"
            " give spec.retryNonce a new value ({retry} does). What cannot change any more needs a"
            " new Backfill."
        ),
        Reason.PLANNING_FAILED: Remedy(
            f"Fix the problem above, {_RETRY}; where the plan itself is lost,"
            " delete this and make it anew."
        ),
        Reason.UNSUPPORTED_PROGRAM: Remedy(
            f"Change the application so that this output can be redirected, {_RETRY}.", in_log=True
        ),
        Reason.ATTEMPTS_EXHAUSTED: Remedy(
            f"Read the driver's log, fix the cause, {_RETRY}:"
            " it goes on after the last committed step.",
            in_log=True,
        ),
        Reason.PUBLISH_CONFLICT: Remedy(
            "Look at what changed the table; to replace it all the same,"
            " delete this and make it anew.",
            start_over=(
                "look at what has changed the table; to replace it all the same,"
                " cancel this and apply it anew"
            ),
        ),
        Reason.RESULT_LOST: Remedy(
            "Nothing brings it back: delete this Backfill and make it anew;"
            " it reads everything once more.",
            start_over="nothing brings the result back; cancel this and apply it anew",
        ),
        Reason.PUBLISH_FAILED: Remedy(
            f"Fix the problem above, {_RETRY}: only the publication is repeated."
        ),
    }
)


def remedy(reason: Reason) -> Remedy:
    """The remedy for a reason; empty if there is none."""
    return REMEDIES.get(reason, Remedy(""))
