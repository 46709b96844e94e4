"""Other Backfills that will publish into the same rows of an output table: a warning when the plan
is made, not an error. Pure.
"""

from collections.abc import Iterable, Iterator

from backfill.api.backfill import Backfill
from backfill.api.output import PublishMode
from backfill.api.quantities import format_time
from backfill.controller.decisions.decide import finished

_NOT_INTO_TABLES = {PublishMode.NONE, PublishMode.EXPORT, PublishMode.DELIVER}


def published_tables(backfill: Backfill) -> frozenset[str]:
    """The tables that a Backfill publishes into."""
    return frozenset(
        output.table
        for output in backfill.spec.outputs
        if output.publish.mode not in _NOT_INTO_TABLES
    )


def rivals(
    backfill: Backfill, others: Iterable[Backfill], *, one_owner: bool = False
) -> tuple[str, ...]:
    """A sentence for each table and each other Backfill that also publishes into it.

    It names the other Backfill only if that is in the same namespace, or if all namespaces have
    ``one_owner``.
    """
    found = [
        (other, one_owner or _same_namespace(backfill, other))
        for other in others
        if _rival(backfill, other)
    ]
    return tuple(
        sentence for other, named in found for sentence in _sentences(backfill, other, named)
    )


def _same_namespace(backfill: Backfill, other: Backfill) -> bool:
    return backfill.metadata.namespace == other.metadata.namespace


def _rival(backfill: Backfill, other: Backfill) -> bool:
    """Whether another Backfill has yet to publish into a window that overlaps."""
    ours, theirs = backfill.spec.window, other.spec.window
    ends = other.metadata.deletion_timestamp is not None or finished(other)
    return not ends and ours.start < theirs.end and theirs.start < ours.end


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
