"""Other Backfills that will publish into the same rows of an output table, or give the same rows to
the program's own sink: a warning when the plan is made, not an error. Pure.
"""

from collections.abc import Iterable, Iterator

from backfill.api.backfill import Backfill
from backfill.api.output import Output, PublishMode
from backfill.api.quantities import count, format_time
from backfill.controller.decisions.decide import finished

_NOT_INTO_TABLES = {PublishMode.NONE, PublishMode.EXPORT, PublishMode.DELIVER}


def published_tables(backfill: Backfill) -> frozenset[str]:
    """The tables that a Backfill publishes into."""
    return frozenset(
        output.table
        for output in backfill.spec.outputs
        if output.publish.mode not in _NOT_INTO_TABLES
    )


def tables_of_rivals(backfill: Backfill) -> frozenset[str]:
    """The tables by which other Backfills are found that may have the same results."""
    return published_tables(backfill) | {each.table for each in delivered_outputs(backfill)}


def delivered_outputs(backfill: Backfill) -> list[Output]:
    """The outputs whose rows are given to the program's own code."""
    outputs = backfill.spec.outputs
    return [output for output in outputs if output.publish.mode is PublishMode.DELIVER]


def rivals(
    backfill: Backfill, others: Iterable[Backfill], *, one_owner: bool = False
) -> tuple[str, ...]:
    """A sentence for each table and each other Backfill that also publishes into it.

    It names the other Backfill only if that is in the same namespace, or if all namespaces have
    ``one_owner``.
    """
    said: list[str] = []
    for other in others:
        if not _overlaps(backfill, other):
            continue
        if not _ends(other):
            said += _sentences(backfill, other, one_owner or _same_namespace(backfill, other))
        if _same_namespace(backfill, other):
            said += _deliveries(backfill, other)
    return tuple(said)


def _same_namespace(backfill: Backfill, other: Backfill) -> bool:
    return backfill.metadata.namespace == other.metadata.namespace


def _overlaps(backfill: Backfill, other: Backfill) -> bool:
    ours, theirs = backfill.spec.window, other.spec.window
    return ours.start < theirs.end and theirs.start < ours.end


def _ends(other: Backfill) -> bool:
    """Whether a Backfill publishes nothing any more."""
    return other.metadata.deletion_timestamp is not None or finished(other)


def _deliveries(backfill: Backfill, other: Backfill) -> Iterator[str]:
    """What another Backfill of the same application has given to the sink of an output, or will."""
    if backfill.spec.application_ref.name != other.spec.application_ref.name:
        return
    delivering = {output.name for output in delivered_outputs(other)}
    window, rows = other.spec.window, {each.name: each.delivery for each in other.status.outputs}
    for number, output in enumerate(backfill.spec.outputs):
        if output.publish.mode is not PublishMode.DELIVER or output.name not in delivering:
            continue
        delivery = rows.get(output.name)
        if delivery is not None and delivery.delivered:
            does = f"has delivered {count(delivery.rows, 'row')} of {output.name}"
        elif not _ends(other):
            does = f"also delivers {output.name}"
        else:
            continue
        yield (
            f"spec.outputs[{number}].publish: Backfill {other.metadata.name} {does}, from"
            f" {format_time(window.start)} to {format_time(window.end)}, so the sink gets rows of"
            " that time twice: reject one of them unless the program's code can take them again"
        )


def _sentences(backfill: Backfill, other: Backfill, named: bool) -> Iterator[str]:
    metadata, window = other.metadata, other.spec.window
    name = (
        f"Backfill {metadata.namespace}/{metadata.name}"
        if named
        else "a Backfill of another namespace"
    )
    for table in sorted(published_tables(backfill) & published_tables(other)):
        yield (
            f"{name}, which is in progress, also writes {table}, from {format_time(window.start)}"
            f" to {format_time(window.end)}: whichever publishes second is refused if the first"
            " one changed rows in its window; cancel one of them unless both are intended"
        )
