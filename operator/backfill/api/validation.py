"""Validation: whether a result was compared as its Backfill asks, and whether enough of it
matches.
"""

import hashlib
import json
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction

from backfill.api.backfill import Backfill
from backfill.api.output import Output
from backfill.api.status import Comparison, OutputStatus

_DIGITS = Decimal("0.0001")


def settings_digest(output: Output) -> str:
    """Digest of everything that decides how the rows of an output are compared."""
    if output.validate_ is None:
        return ""
    compared = output.validate_.model_copy(update={"min_match": "100"}).to_manifest()
    return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()[:16]


def to_compare(backfill: Backfill) -> tuple[Output, ...]:
    """Outputs whose results are not published and have yet to be compared as the spec says.

    One that could not be compared is tried again after any change of the spec but its approval.
    """
    known = {status.name: status for status in backfill.status.outputs}
    last = backfill.status.attempts[-1] if backfill.status.attempts else None
    changed = last is not None and last.generation != backfill.metadata.generation

    def again(output: Output, compared: Comparison | None) -> bool:
        failed = compared is not None and bool(compared.problem)
        return changed and failed and output.publish.mismatch == "Wait"

    return tuple(
        output
        for output in backfill.spec.outputs
        if output.validate_ is not None
        and (status := known.get(output.name)) is not None
        and not status.is_published
        and (not _is_current(output, status.comparison) or again(output, status.comparison))
    )


def falls_short(output: Output, status: OutputStatus) -> bool:
    """Whether a result matches less than it must, or that is unknown.

    What is published is not compared again: what was found before counts for it.
    """
    compared, wanted = status.comparison, output.validate_
    if wanted is None:
        return False
    if compared is None or compared.problem:
        return True
    if not status.is_published and not _is_current(output, compared):
        return True
    return not reaches(compared, wanted.min_match)


def reaches(compared: Comparison, min_match: str) -> bool:
    """Whether the share of matching rows is at least a percentage. Exact."""
    return 100 * compared.matching >= Fraction(min_match) * rows_compared(compared)


def other_side(reference: str | None) -> str:
    """What a result is compared with, in words: a reference table by its name, or production."""
    return f"the reference {reference}" if reference else "production"


def rows_compared(compared: Comparison) -> int:
    """All rows of production or of the reference, and those of the result that it does not have."""
    return compared.matching + compared.different + compared.missing + compared.extra


def percentage(compared: Comparison) -> str:
    """The percentage of matching rows, rounded down to four decimals: it is 100 only if all match.

    Without any rows nothing differs.
    """
    rows = rows_compared(compared)
    share = Decimal(100 * compared.matching) / Decimal(rows) if rows else Decimal(100)
    return f"{share.quantize(_DIGITS, ROUND_FLOOR).normalize():f}"


def _is_current(output: Output, compared: Comparison | None) -> bool:
    return compared is not None and compared.settings == settings_digest(output)
