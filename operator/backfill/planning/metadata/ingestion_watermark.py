"""Up to when ingestion says that a table has everything: a watermark in the properties of its
snapshots.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from backfill.api.quantities import to_us
from backfill.iceberg.timestamp_units import bounded_us, ticks_of
from backfill.planning.plan import SourceInput

KNOWN_PROPERTIES = {"kafka.connect.valid-through-ts": None, "kafka.connect.vtts": "ms"}
"""Properties that are looked for, with the unit of numbers: of Iceberg's sink for Kafka Connect,
and of the sink of Tabular that it was made from. Iceberg's sinks for Flink and Spark write none.
Both sinks write their property only together with rows.
"""
_OFFSETS = "kafka.connect.offsets."
"""Start of the property by which these sinks know their own snapshots: one for each connector."""
_DAY_US = 86_400_000_000
_WITHOUT_ZONE = ("timestamp", "timestamp_ns")


@dataclass(frozen=True, slots=True)
class Ingested:
    """What ingestion says."""

    through_us: int
    """Everything that arrived until then is in the table, as it was at this snapshot."""
    property: str
    newer_rows: bool
    """Whether later snapshots without the property have added rows."""
    several: bool
    """Whether several connectors write the table; this is what the last of them says."""


def ingested(
    metadata: TableMetadata, snapshot: Snapshot, source: SourceInput
) -> tuple[Ingested | None, str]:
    """The newest watermark in a snapshot or its ancestors, as far as they are kept; and why there
    is none although the source names its property.

    A compaction does not carry the property, and changes no rows: the snapshot before it counts.
    Of several connectors, the one that is furthest behind counts.
    """
    named = source.watermark_property
    properties = KNOWN_PROPERTIES if named is None else {named: source.watermark_unit}
    newer_rows, looked_at = False, 0
    writers: set[str] = set()
    found: dict[str, Ingested] = {}
    for ancestor in _ancestors(metadata, snapshot):
        looked_at += 1
        summary = ancestor.summary.additional_properties if ancestor.summary else {}
        writer = next((name for name in summary if name.startswith(_OFFSETS)), "")
        writers.add(writer)
        name = next((name for name in properties if name in summary), None)
        if name is None:
            newer_rows |= _adds_rows(ancestor)
        elif writer not in found:
            through_us = _read(summary[name], properties[name])
            if through_us is None:
                unit = properties[name]
                return None, (
                    f"property {name} of snapshot {ancestor.snapshot_id} is"
                    f" {summary[name][:64]!r}, which is not a"
                    f" {'time in ISO 8601' if unit is None else f'number of {unit}'}"
                )
            # what arrives later than a snapshot cannot be in it
            through_us = min(through_us, ancestor.timestamp_ms * 1000)
            found[writer] = Ingested(through_us, name, newer_rows, several=False)
    connectors = writers - {""}
    if found and len(connectors) > 1:
        silent = len(connectors - found.keys())
        if silent:
            return None, (
                f"{silent} of {len(connectors)} Kafka connectors that wrote the retained snapshots"
                " do not record how far they got"
            )
        last = min(found.values(), key=lambda each: each.through_us)
        return Ingested(last.through_us, last.property, last.newer_rows, several=True), ""
    if found:
        return next(iter(found.values())), ""
    if named is None:
        return None, ""
    return None, (
        f"none of the last {looked_at} snapshots, the only ones that have not expired, has the"
        f" property {named}"
    )


def written_us(metadata: TableMetadata, snapshot: Snapshot) -> int:
    """When the newest rows of a snapshot were committed, as far as its ancestors are kept: those
    that add none do not count. Rows that arrived later are not in it.
    """
    adding = (each for each in _ancestors(metadata, snapshot) if _adds_rows(each))
    return next(adding, snapshot).timestamp_ms * 1000


def latest_us(committed_us: int, source: SourceInput) -> int:
    """Rows from then on cannot have arrived when a snapshot was committed: their timestamps are
    wrong, and say nothing about how far ingestion is. Timestamps without a zone may be those of any
    zone.
    """
    without_zone = source.timestamp_type in _WITHOUT_ZONE
    return bounded_us(committed_us + (_DAY_US if without_zone else 0))


def _adds_rows(snapshot: Snapshot) -> bool:
    kept_or_fewer = (Operation.REPLACE, Operation.DELETE)
    return not snapshot.summary or snapshot.summary.operation not in kept_or_fewer


def _ancestors(metadata: TableMetadata, snapshot: Snapshot) -> Iterator[Snapshot]:
    """A snapshot and those before it. PyIceberg's own function searches all snapshots for each, and
    does not end where one is its own ancestor.
    """
    kept = {each.snapshot_id: each for each in metadata.snapshots}
    found: Snapshot | None = snapshot
    while found is not None:
        yield found
        kept.pop(found.snapshot_id, None)
        parent = found.parent_snapshot_id
        found = None if parent is None else kept.get(parent)


def _read(value: str, unit: str | None) -> int | None:
    """A time in microseconds: a number of units, or ISO 8601 with its offset from UTC."""
    try:
        if unit is not None:
            return ticks_of("long", unit).floor_us(int(value))
        moment = datetime.fromisoformat(value)
        return to_us(moment) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
