"""Handing over, in spec and status of a Backfill: the state that history has built continues with
live traffic.
"""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from backfill.api.base import Model, shortened
from backfill.api.field_types import InputName, PlanId
from backfill.api.pods import Overrides
from backfill.api.quantities import Duration, Time

LIVE_NAME_PATTERN: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


class HandOff(Model):
    """How the state that history has built is handed over to live traffic."""

    to: Literal["Live"]
    """Where the state continues. ``Live``: on the Kafka topics in ``sources[].live``, in each
    partition from the first offset not covered by history.
    """
    starting_timestamp_margin: Duration | None = None
    """How far back live traffic starts for sources that lack ``kafka.partitionColumn`` or
    ``kafka.offsetColumn``. Required if there are such sources; ignored for all others. In each
    partition, such a source continues at the first record whose Kafka timestamp is at most this
    much older than the newest row of history. Must be longer than the maximum ingestion delay in
    any partition plus clock differences: records from before that point that are missing from the
    table are lost. Records after it that the table already has are read twice, so queries must drop
    duplicates.
    """
    max_distance: Duration | None = None
    """How far in the past the end of history may be when only the last step remains to be read. If
    it is further in the past, history is extended with the rows that were appended to the tables
    since the plan was made, so that Kafka need not retain them. This repeats until history ends
    recently enough, or until an extension fails to halve the distance. Requires
    ``kafka.partitionColumn`` and ``kafka.offsetColumn`` for all sources. Default: history is not
    extended.
    """
    start: Literal["Prepare", "Deploy"] = "Prepare"
    """``Prepare``: the checkpoints are copied to the locations where the application keeps them,
    and the Backfill succeeds; you then start the application as usual. ``Deploy``: the operator
    also creates the live SparkApplication, and the Backfill succeeds once that application is at
    most ``maxLag`` behind Kafka. ``Deploy`` requires a cluster.
    """
    state_partitions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of state partitions that the live application continues with. The application keeps
    this number permanently, regardless of ``spark.sql.shuffle.partitions``. Default: the
    application's own number, with which history is then read.
    """
    name: Annotated[str, Field(max_length=45, pattern=LIVE_NAME_PATTERN)] | None = None
    """Name of the live SparkApplication that ``Deploy`` creates: at most 45 lower-case letters,
    digits and ``-``. No SparkApplication of this name may exist. Default: the Backfill's name
    followed by ``-live``, shortened if necessary.
    """
    overrides: Overrides = Overrides()
    """Settings of the live SparkApplication that differ from production's. Used by ``Deploy``."""
    max_lag: Duration = Field(default="5m", validate_default=True)
    """How far behind Kafka the live application may be for the Backfill to succeed. Used by
    ``Deploy``.
    """


MOST_SHOWN_PARTITIONS: Final = 256
MOST_HANDED_OVER: Final = 64
MOST_EXTENSIONS: Final = 64
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Seconds = Annotated[float, Field(ge=0, le=10**12)]
_Shown = Annotated[str, BeforeValidator(shortened), Field(max_length=2304)]
"""Text of a driver, which is shown to people: what steers a terminal is escaped."""


class HandedOverSource(Model):
    """Where a source continues in Kafka."""

    model_config = {"extra": "ignore"}

    name: InputName
    """Name of the source."""
    topic: Annotated[_Shown, Field(max_length=1024)]
    """Kafka topic from which the source continues."""
    partitions: _Count = 0
    """Number of partitions of the topic."""
    offsets: Annotated[dict[str, _Count], Field(max_length=MOST_SHOWN_PARTITIONS)] = Field(
        default_factory=dict
    )
    """Offset of the first record that the live application reads, by partition. Limited to the
    first 256 partitions.
    """
    starting_timestamp: Time | None = None
    """Kafka timestamp from which the live application reads; unset if the source continues by
    offsets that are stored with the rows.
    """


class HandedOverQuery(Model):
    """State of a query, as it was handed over and as it continues."""

    model_config = {"extra": "ignore"}

    name: Annotated[_Shown, Field(max_length=1024)]
    """Name of the query."""
    checkpoint_location: _Shown
    """Location of its checkpoint, as the application sets it."""
    query_id: Annotated[_Shown, Field(max_length=512)] | None = None
    """Spark's ID of the query, which it keeps in the live application; null if unknown."""
    batch: _Count = 0
    """Number of the last micro-batch of history. The live application begins with the next one."""
    state_partitions: _Count = 0
    """Number of partitions of the state; 0 for a query without state."""
    live_batch: int | None = None
    """Number of the last micro-batch that the live application has committed; null until the
    application reports it. Only with ``start: Deploy``.
    """
    records_behind: _Count | None = None
    """Number of records in Kafka that the live application has not committed; null if unknown. Only
    with ``start: Deploy``.
    """
    lag_seconds: _Seconds | None = None
    """How far the live application is behind Kafka, in seconds; null if unknown. Only with
    ``start: Deploy``.
    """


class HistoryExtension(Model):
    """An extension of history with rows that were appended after the plan was made."""

    model_config = {"extra": "ignore"}

    plan_id: PlanId
    """ID of the extended plan, and name of its directory, which is next to that of ``planId``."""
    at: Time
    """When history was extended."""
    after: Time
    """End of history before this extension."""
    history_end: Time
    """End of history after this extension."""


class HandOffStatus(Model):
    """Observed state of the hand-off."""

    model_config = {"extra": "ignore"}

    history_end: Time | None = None
    """End of history: immediately after the newest row of all sources when the plan was made or
    last extended.
    """
    growing: Literal[True] | None = None
    """Whether history may still be extended with newer rows (``maxDistance``). Until that is
    decided, the last step of the plan is not read.
    """
    extensions: (
        Annotated[tuple[HistoryExtension, ...], Field(max_length=MOST_EXTENSIONS)] | None
    ) = None
    """Extensions of history, the oldest first; unset if there are none."""
    complete_because: _Shown | None = None
    """Why history is not extended any further. Unset until this is decided, or if ``maxDistance``
    is not set.
    """
    kept_until: Time | None = None
    """Earliest time at which Kafka may remove records that follow history, according to the topics'
    ``retention.ms``. Set when the driver starts its queries; unset if Kafka never removes them, or
    if the retention is unknown.
    """
    starting_timestamp: Time | None = None
    """Time of the oldest records that the live application reads, for sources that continue by
    timestamp. Records that the tables already have are read twice. Set when the driver starts its
    queries; unset if all sources continue by offsets.
    """
    repeated_in: Annotated[tuple[_Shown, ...], Field(max_length=MOST_HANDED_OVER)] | None = None
    """Queries not known to drop the records that are read twice; null if there are none."""
    sources: Annotated[tuple[HandedOverSource, ...], Field(max_length=MOST_HANDED_OVER)] = ()
    """Where each source continues in Kafka. Empty until the checkpoints are written."""
    queries: Annotated[tuple[HandedOverQuery, ...], Field(max_length=MOST_HANDED_OVER)] = ()
    """The state of each query. Empty until the checkpoints are written."""
    seconds: _Seconds | None = None
    """Time taken to write the checkpoints, in seconds; null until they are written."""
    application: Annotated[str, Field(max_length=63)] | None = None
    """Name of the live SparkApplication. Set before it is created. Only with ``start: Deploy``."""
    created_at: Time | None = None
    """When the live SparkApplication was first seen. It is never created again after that."""
    lag_seconds: _Seconds | None = None
    """How far the slowest query of the live application is behind Kafka, in seconds; null if
    unknown.
    """

    @property
    def without_lag(self) -> "HandOffStatus":
        """This status without what changes all the time."""
        numbers = {"live_batch": None, "records_behind": None, "lag_seconds": None}
        queries = tuple(query.model_copy(update=numbers) for query in self.queries)
        return self.model_copy(update={"queries": queries, "lag_seconds": None})

    @property
    def written(self) -> bool:
        """Whether the checkpoints are complete."""
        return bool(self.queries)
