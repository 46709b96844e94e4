"""Compared results: the condition ``Validated``, and what it says."""

from backfill.api.conditions import ConditionType, Reason
from backfill.api.output import Output
from backfill.api.quantities import count
from backfill.api.redaction import redact
from backfill.api.status import Comparison, OutputStatus
from backfill.api.validation import (
    falls_short,
    other_side,
    percentage,
    reaches,
    rows_compared,
)
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.status_draft import Draft
from backfill.protocol.split_assignment import OutputComparison, SplitAssignmentStatus

_VALIDATED = ConditionType.VALIDATED


def say_comparing(observed: Observed, draft: Draft, report: SplitAssignmentStatus) -> None:
    """Says which output is being compared, and with what."""
    outputs = {output.name: output for output in observed.backfill.spec.outputs}
    output = outputs.get(report.comparing)
    reference = output.reference_table if output else None
    draft.condition(
        _VALIDATED,
        "Unknown",
        Reason.COMPARING,
        f"comparing {report.comparing} with {other_side(reference)}",
    )


def with_comparison(output: OutputStatus, compared: tuple[OutputComparison, ...]) -> OutputStatus:
    """An output with the comparison that a driver has reported; one that is published keeps the one
    that it was published with.
    """
    found = next((each for each in compared if each.output == output.name), None)
    if found is None or output.is_published:
        return output
    fields = {name: getattr(found, name) for name in Comparison.model_fields}
    fields["problem"] = redact(found.problem)  # libraries write into it
    match = None if found.problem else percentage(found)
    return output.model_copy(update={"comparison": Comparison(**fields), "match": match})


def say_validated(observed: Observed, draft: Draft) -> None:
    """Sets the condition by the comparisons of all outputs that ask for one."""
    staged = {status.name: status for status in draft.status.outputs}
    asked = [output for output in observed.backfill.spec.outputs if output.validate_ is not None]
    compared = [(output, staged[output.name]) for output in asked if output.name in staged]
    if not compared:
        draft.remove_condition(_VALIDATED)
        return
    message = "; ".join(validated(output, status) for output, status in compared)
    short = [status for output, status in compared if falls_short(output, status)]
    if not short:
        draft.condition(_VALIDATED, "True", Reason.MATCHED, message)
    elif any(status.match is None for status in short):
        draft.condition(_VALIDATED, "False", Reason.NOT_COMPARABLE, message)
    else:
        draft.condition(_VALIDATED, "False", Reason.BELOW_MIN_MATCH, message)


def validated(output: Output, status: OutputStatus) -> str:
    """How the result of an output compares with production, or with its reference."""
    compared, wanted = status.comparison, output.validate_
    if compared is None:
        return f"{output.name} was not compared with {other_side(output.reference_table)}"
    other = other_side(compared.reference)
    if compared.problem:
        return f"{output.name} could not be compared with {other}: {compared.problem}"
    rows = rows_compared(compared)
    if not rows:
        return f"{output.name}: neither the result nor {other} has rows in the window"
    numbers = (
        (compared.different, "different"),
        (compared.missing, f"only in {'the reference' if compared.reference else other}"),
        (compared.extra, "only in the result"),
    )
    differ = ", ".join(f"{number:,} {what}" for number, what in numbers if number)
    details = f" ({differ})" if differ else ""
    least = (
        f"less than minMatch {wanted.min_match} %"
        if wanted is not None and not reaches(compared, wanted.min_match)
        else ""
    )
    match = f"{count(rows, 'row')} {'matches' if rows == 1 else 'match'} {other}"
    told = f"{output.name}: {status.match} % of {match}{details}"
    return "; ".join((", ".join(filter(None, (told, least))), f"report: {compared.report}"))
