"""Tables that an application reads as they are at one time, such as those of dimensions."""

from datetime import datetime
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from backfill.api.base import Model
from backfill.api.field_types import TableName
from backfill.api.quantities import MOMENT_PATTERN, parse_moment
from backfill.api.source import SnapshotRef

MOST_STATIC_TABLES: Final = 64


def _moment(value: str) -> str:
    if value not in ("now", "window"):
        parse_moment(value)
    return value


class StaticTable(Model):
    """Iceberg table that the application reads with ``spark.table``, ``spark.read.table``,
    ``spark.read.format("iceberg").load`` or ``spark.sql``, for example to join a stream with it.
    The table is read through the Backfill's catalogs, so Spark needs no Iceberg runtime for it.
    Every attempt reads the same snapshot.
    """

    table: TableName
    """Table, as ``catalog.namespace.table``. The application may leave out the catalog."""
    as_of: Annotated[
        str,
        Field(max_length=40, pattern=rf"^(now|window|{MOMENT_PATTERN})$"),
        AfterValidator(_moment),
    ] = "now"
    """Snapshot to read. ``now``: the one that is current when the plan is made. ``window``: the one
    that was current at ``window.end``. A time, or a date for midnight UTC: the one that was current
    then.
    """

    def snapshot(self, window_end: datetime) -> SnapshotRef:
        """The snapshot in the form of a source's."""
        match self.as_of:
            case "now":
                return SnapshotRef()
            case "window":
                return SnapshotRef(as_of=window_end)
            case moment:
                return SnapshotRef(as_of=parse_moment(moment))
