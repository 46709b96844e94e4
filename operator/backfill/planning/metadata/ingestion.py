"""Up to when ingestion says that a table has everything: a watermark in the properties of its
snapshots.
"""

from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from backfill.api.quantities import to_us
from backfill.iceberg.timestamps import ticks_of
from backfill.planning.plan import SourceInput

KNOWN_PROPERTIES = {"kafka.connect.valid-through-ts": None, "kafka.connect.vtts": "ms"}
"""Properties that are looked for, with the unit of numbers: of Iceberg's sink for Kafka Connect,
and of the sink of Tabular that it was made from. Iceberg's sinks for Flink and Spark write none.
"""


@dataclass(frozen=True, slots=True)
class Ingested:
    """What ingestion says."""

    through_us: int
    """Everything that arrived until then is in the table, as it was at this snapshot."""
    property: str
    newer_rows: bool
    """Whether later snapshots without the property have added rows."""


def ingested(
    metadata: TableMetadata, snapshot: Snapshot, source: SourceInput
) -> tuple[Ingested | None, str]:
    """The newest watermark in a snapshot or its ancestors, as far as they are kept; and why there
    is none although the source names its property.

    A compaction does not carry the property, and changes no rows: the snapshot before it counts.
    """
    named = source.watermark_property
    properties = KNOWN_PROPERTIES if named is None else {named: source.watermark_unit}
    newer_rows, looked_at = False, 0
    for ancestor in ancestors_of(snapshot, metadata):
        summary = ancestor.summary.additional_properties if ancestor.summary else {}
        for name, unit in properties.items():
            if name not in summary:
                continue
            through_us = _read(summary[name], unit)
            if through_us is None:
                return None, (
                    f"property {name} of snapshot {ancestor.snapshot_id} is {summary[name][:64]!r},"
                    f" which is no {'time in ISO 8601' if unit is None else f'number of {unit}'}"
                )
            return Ingested(through_us, name, newer_rows), ""
        looked_at += 1
        newer_rows |= not ancestor.summary or ancestor.summary.operation is not Operation.REPLACE
    if named is None:
        return None, ""
    return None, (
        f"none of the last {looked_at} snapshots, which are those that have not expired, has the"
        f" property {named}"
    )


def _read(value: str, unit: str | None) -> int | None:
    """A time in microseconds: a number of units, or ISO 8601 with its offset from UTC."""
    try:
        if unit is not None:
            return ticks_of("long", unit).floor_us(int(value))
        moment = datetime.fromisoformat(value)
        return to_us(moment) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
