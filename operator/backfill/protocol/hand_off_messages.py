"""What controller and driver say to each other about a hand-off: the state that history has built
continues with live Kafka.
"""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from backfill.api.base import Message, Model
from backfill.api.field_types import InputName
from backfill.api.quantities import Duration, Time
from backfill.api.spec import MOST_SOURCES
from backfill.protocol.bounded_fields import Count, QueryName, Seconds

LIVE_SETTINGS_VARIABLE: Final = "BACKFILL_LIVE_SETTINGS"
"""The environment variable that holds :class:`LiveSettings` as JSON, for the runtime in the driver
of a live application.
"""
MOST_QUERIES: Final = 64
MOST_SHOWN_PARTITIONS: Final = 256
"""A report has the offsets of this many partitions: a status has room for no more."""


_MOST_DIGITS = 10


def _by_partition(offsets: dict[str, int]) -> dict[str, int]:
    """Offsets whose keys are numbers. A driver is not trusted: they are shown, and kept in status.

    Raises:
        ValueError: one is none.
    """
    for key in offsets:
        if not (key.isascii() and key.isdigit() and len(key) <= _MOST_DIGITS):
            raise ValueError("a key is not the number of a partition")
    return offsets


class HandOffSettings(Model):
    """How an attempt hands its state over to live Kafka, once all steps are committed."""

    state_partitions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of partitions that each query's state must have for the live application. Default: as
    many as history ran with.
    """
    checkpoint_location: Annotated[str, Field(max_length=2048)] | None = None
    """``spark.sql.streaming.checkpointLocation`` of the live application, below which queries
    without a location of their own keep their checkpoints; null if it sets none.
    """
    starting_timestamp_margin: Duration | None = None
    """For sources whose rows have no offsets: how much older than the newest row of history the
    first records of live traffic are; null if there is no such source.
    """
    deployed: bool = False
    """Whether the operator starts the live application and waits until it has caught up."""
    growing: bool = False
    """Whether history may still be extended with newer rows of the tables. Kafka then need not yet
    hold what follows the rows of the plan.
    """


class HandOffSource(Model):
    """Where a source continues in Kafka."""

    source: InputName
    """Name of the source."""
    topic: Annotated[str, Field(max_length=249)]
    """Kafka topic from which the source continues."""
    partitions: Count
    """Number of partitions of the topic."""
    offsets: Annotated[
        dict[str, Count], Field(max_length=MOST_SHOWN_PARTITIONS), AfterValidator(_by_partition)
    ]
    """Offset of the first record that the live application reads, by partition. Limited to the
    first 256 partitions.
    """
    kept_until: Time | None = None
    """Earliest time at which Kafka may remove the first of these records, according to the topic's
    ``retention.ms``; null if it never removes them, or if the retention is unknown.
    """
    starting_timestamp: Time | None = None
    """Kafka timestamp from which the live application reads; null if the source continues by
    offsets.
    """


class HandOffQuery(Model):
    """The state of a query as it is handed over."""

    query: QueryName
    """Name of the query."""
    checkpoint_location: Annotated[str, Field(max_length=2048)]
    """Where its checkpoint is written: the location that the program sets for the query."""
    query_id: Annotated[str, Field(max_length=64)] = ""
    """The query's ID, which the live query takes over with the checkpoint."""
    batch: Annotated[int, Field(ge=0)]
    """Number of the last micro-batch of history. The live application begins with the next one."""
    state_partitions: Count = 0
    """Number of partitions of the state; 0 for a query without state."""
    sources: Annotated[tuple[InputName, ...], Field(max_length=MOST_SOURCES)] = ()
    """Names of the sources that it reads."""


class HandOffReport(Model):
    """The hand-off of an attempt."""

    sources: Annotated[tuple[HandOffSource, ...], Field(max_length=MOST_SOURCES)] = ()
    """Where each source continues in Kafka."""
    queries: Annotated[tuple[HandOffQuery, ...], Field(max_length=MOST_QUERIES)] = ()
    """The state of each query."""
    repeated_in: Annotated[tuple[QueryName, ...], Field(max_length=MOST_QUERIES)] = ()
    """Queries not known to drop the records that are read twice."""
    written: bool = False
    """Whether the checkpoints of all queries are complete where the program looks for them."""
    seconds: Seconds = 0.0
    """Time taken to write the checkpoints, in seconds."""


class LiveQuery(Model):
    """How far behind Kafka a query of the live application is."""

    query: QueryName
    """Name of the query; its ID if it has none."""
    query_id: Annotated[str, Field(max_length=64)] = ""
    """ID of the query."""
    batch: Annotated[int, Field(ge=-1)] = -1
    """Number of the last committed micro-batch; -1 before the first one."""
    records_behind: Count | None = None
    """Number of offsets between the last committed record and the newest one, in total over all
    partitions; null before the first micro-batch.
    """
    lag_seconds: Seconds | None = None
    """Upper bound of the query's lag behind Kafka, in seconds: the query has committed every record
    that Kafka had this long before ``at``. Null until it has committed what Kafka had when the
    application started.
    """
    at: Time
    """When this was observed."""
    ended: bool = False
    """Whether the query has ended."""


class LiveReport(Model):
    """What the driver of the live application reports, until the Backfill is deleted."""

    queries: Annotated[tuple[LiveQuery, ...], Field(max_length=MOST_QUERIES)] = ()
    """The queries that have started."""
    heartbeat: Time
    """When the driver last reported."""
    message: Message = ""
    """Why a query has ended with an error; otherwise empty."""


class LiveSettings(Model):
    """Settings of the driver of a live application, which reports how far it is behind Kafka."""

    namespace: str
    """Namespace of the Backfill."""
    backfill: str
    """Name of the Backfill and of its SplitAssignment."""
    uid: str
    """UID of the Backfill. Reports about another one of this name are not sent."""
    main_file: str
    """Main program of the application: a path, or a URI from which the driver fetches it."""
    arguments: tuple[str, ...] = ()
    """Arguments of the main program."""
