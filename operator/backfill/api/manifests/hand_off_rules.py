"""Rules of a hand-off between the fields of a Backfill."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from backfill.api.errors import Problem
from backfill.api.manifests.parts import SpecParts
from backfill.api.output import Output, PublishMode
from backfill.api.source import Source
from backfill.api.spec import OrderingPolicy

_MARGIN: Final = "startingTimestampMargin"


def live_goes_with_hand_off(parts: SpecParts) -> Iterator[Problem]:
    """``end: Live`` and ``handOff`` are only valid together."""
    if parts.window is None or parts.window.live == parts.hands_over:
        return
    if parts.window.live:
        yield Problem(
            "spec.window.end",
            "is Live, but spec.handOff is missing",
            "add handOff: {to: Live}, or set end to a time",
        )
    else:
        yield Problem(
            "spec.window.end",
            "is a time, but spec.handOff requires Live, since live traffic continues where the"
            " tables end",
            "set end: Live, or remove handOff",
        )


def hand_off_keeps_state(parts: SpecParts) -> Iterator[Problem]:
    """What would not give the state, or the results, of an application that has always been on
    Kafka.
    """
    if not parts.hands_over:
        return
    if parts.window is not None and parts.window.drain:
        yield Problem(
            "spec.window.drain",
            "cannot be combined with handOff: live traffic closes the results that are still open",
            "remove drain",
        )
    if parts.ordering is not None and parts.ordering.policy is OrderingPolicy.UNORDERED:
        yield Problem(
            "spec.ordering.policy",
            '"Unordered" is only for stateless applications, but handOff hands over state',
            "choose another policy",
        )
    if parts.execution == "Batch":
        yield Problem(
            "spec.execution",
            '"Batch" keeps no state, but handOff hands over state',
            "use Streaming or, equivalently with handOff, Auto",
        )
    wanted = parts.hand_off
    if wanted is not None and wanted.starting_timestamp_margin == timedelta():
        yield Problem(
            f"spec.handOff.{_MARGIN}",
            "must be greater than zero: ingestion may not have written all records with the newest"
            " timestamp yet",
            "set it to the maximum lag of ingestion behind Kafka, such as 30m",
        )
    if wanted is not None and wanted.max_lag == timedelta():
        yield Problem(
            "spec.handOff.maxLag",
            "must be greater than zero: a live application is always a little behind Kafka",
            "set it to the maximum lag, such as 5m",
        )
    # the problems of a hand-off that cannot be read are reported elsewhere
    by_time = wanted is None or parts.by_time
    for n, source in enumerate(parts.sources):
        yield from _continues_in_kafka(f"spec.sources[{n}]", source, by_time=by_time)
    if wanted is not None and wanted.max_distance is not None:
        for n, source in enumerate(parts.sources):
            yield from _may_grow(f"spec.sources[{n}]", source)
    yield from _mode_has_no_end("spec.publish", parts.publish)
    for n, output in enumerate(parts.outputs):
        yield from _has_no_end(f"spec.outputs[{n}]", output)


def _continues_in_kafka(field: str, source: Source | None, *, by_time: bool) -> Iterator[Problem]:
    """Every partition of a source must continue at the offset after its last row or ``by_time``."""
    if source is None:
        return
    for column in ("partition", "offset"):
        if getattr(source.kafka, f"{column}_column") is None and not by_time:
            yield Problem(
                f"{field}.kafka.{column}Column",
                "is missing; handOff requires it to determine where live traffic continues",
                f"set it to the column with the Kafka {column}; if the table has none, set"
                f" handOff.{_MARGIN} to more than the maximum lag of ingestion behind Kafka:"
                " records that precede the newest row by less than that are then read twice",
            )
    for name in ("filter", "regions"):
        if getattr(source, name) is not None:
            yield Problem(
                f"{field}.{name}",
                "excludes rows from history that live traffic contains",
                f"remove {name}, and filter in the application",
            )


def _may_grow(field: str, source: Source | None) -> Iterator[Problem]:
    """Only rows whose offsets are known are certain to follow those that were read."""
    if source is None:
        return
    if not source.kafka.identifies_records:
        yield Problem(
            "spec.handOff.maxDistance",
            "extends history with newer rows, which requires the Kafka offsets of all rows, but"
            f" {field}.kafka does not set their columns",
            "set partitionColumn and offsetColumn, or remove maxDistance",
        )
    if source.snapshot.is_chosen:
        key = "id" if source.snapshot.id is not None else "asOf"
        yield Problem(
            "spec.handOff.maxDistance",
            f"extends history with newer snapshots, but {field}.snapshot.{key} selects a fixed one",
            f"remove maxDistance or snapshot.{key}",
        )


def _has_no_end(field: str, output: Output | None) -> Iterator[Problem]:
    """The result has no end: the live application continues to write."""
    if output is None:
        return
    yield from _mode_has_no_end(f"{field}.publish.mode", output.publish.mode)
    if output.validate_ is not None:
        yield Problem(
            f"{field}.validate",
            "requires a window that ends, but with handOff live traffic continues",
            "remove validate, and compare in a separate Backfill without handOff",
        )


def _mode_has_no_end(field: str, mode: str | None) -> Iterator[Problem]:
    if mode == PublishMode.REPLACE:
        yield Problem(
            field,
            '"Replace" requires a window that ends, but with handOff live traffic continues',
            "use None, Append or Upsert",
        )
    if mode == PublishMode.DELIVER:
        yield Problem(
            field,
            '"Deliver" is not possible with handOff: the live application delivers by itself',
            "deliver in a separate Backfill without handOff",
        )


def live_application_has_its_own_name(parts: SpecParts) -> Iterator[Problem]:
    """Its name differs from that of ``applicationRef``."""
    if parts.hand_off is None or parts.hand_off.start != "Deploy":
        return
    if parts.hand_off.name is not None and parts.hand_off.name == parts.application:
        yield Problem(
            "spec.handOff.name",
            f'"{parts.hand_off.name}" is the SparkApplication of spec.applicationRef',
            "choose another name for the live application",
        )
