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
            "is a time, but with spec.handOff live traffic continues where the tables end",
            "write end: Live, or leave out handOff",
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
            "leave out drain",
        )
    if parts.ordering is not None and parts.ordering.policy is OrderingPolicy.UNORDERED:
        yield Problem(
            "spec.ordering.policy",
            '"Unordered" is only for applications without state, but handOff hands state over',
            "choose another policy",
        )
    if parts.execution == "Batch":
        yield Problem(
            "spec.execution",
            '"Batch" keeps no state, but handOff hands state over',
            "write Streaming, or Auto, which means the same with handOff",
        )
    wanted = parts.hand_off
    if wanted is not None and wanted.starting_timestamp_margin == timedelta():
        yield Problem(
            f"spec.handOff.{_MARGIN}",
            "must be greater than zero: ingestion may not have written all records with the"
            " newest time yet",
            "set it to the longest time that ingestion may have been behind Kafka, such as 30m",
        )
    if wanted is not None and wanted.max_lag == timedelta():
        yield Problem(
            "spec.handOff.maxLag",
            "must be greater than zero: a live application is always a little behind Kafka",
            "set it to how far behind it may be, such as 5m",
        )
    # the problems of a hand-off that cannot be read are reported elsewhere
    by_time = wanted is None or parts.by_time
    for n, source in enumerate(parts.sources):
        yield from _continues_in_kafka(f"spec.sources[{n}]", source, by_time=by_time)
    if wanted is not None and wanted.max_distance is not None:
        for n, source in enumerate(parts.sources):
            yield from _may_grow(f"spec.sources[{n}]", source)
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
                "is missing; handOff needs it to know where live traffic continues",
                f"name the column that holds the Kafka {column}; if the table has none, set"
                f" handOff.{_MARGIN} to more than ingestion was ever behind Kafka: records that"
                " precede the newest row by less than that are then read again",
            )
    if source.live is None:
        yield Problem(
            f"{field}.live",
            "is missing; handOff needs it to know where live traffic comes from",
            "write live: {kafka: {topic: TOPIC}}",
        )
    for name in ("filter", "regions"):
        if getattr(source, name) is not None:
            yield Problem(
                f"{field}.{name}",
                "leaves rows out of history that live traffic contains",
                f"leave out {name}, and filter in the application",
            )


def _may_grow(field: str, source: Source | None) -> Iterator[Problem]:
    """Only rows whose offsets are known are certain to follow those that were read."""
    if source is None:
        return
    if not source.kafka.identifies_records:
        yield Problem(
            "spec.handOff.maxDistance",
            "extends history with newer rows, which needs the Kafka offsets of all rows, but"
            f" {field}.kafka does not name their columns",
            "name partitionColumn and offsetColumn, or leave out maxDistance",
        )
    if source.snapshot.is_chosen:
        key = "id" if source.snapshot.id is not None else "asOf"
        yield Problem(
            "spec.handOff.maxDistance",
            f"extends history with newer snapshots, but {field}.snapshot.{key} chooses one",
            f"leave out maxDistance or snapshot.{key}",
        )


def _has_no_end(field: str, output: Output | None) -> Iterator[Problem]:
    """The result has no end: the live application continues to write."""
    if output is None:
        return
    if output.publish.mode is PublishMode.REPLACE:
        yield Problem(
            f"{field}.publish.mode",
            '"Replace" needs a window that ends, but with handOff live traffic continues',
            "write None, Append or Upsert",
        )
    if output.validate_ is not None:
        yield Problem(
            f"{field}.validate",
            "needs a window that ends, but with handOff live traffic continues",
            "leave out validate; compare in a Backfill of its own, without handOff",
        )


def live_application_has_its_own_name(parts: SpecParts) -> Iterator[Problem]:
    """Its name differs from that of ``applicationRef``."""
    if parts.hand_off is None or parts.hand_off.start != "Deploy":
        return
    if parts.hand_off.name is not None and parts.hand_off.name == parts.application:
        yield Problem(
            "spec.handOff.name",
            f'"{parts.hand_off.name}" is the SparkApplication of spec.applicationRef',
            "give the live one another name",
        )
