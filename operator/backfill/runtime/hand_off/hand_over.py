"""The hand-off of a run: what is checked before its queries start, and done after they end."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from backfill.api.errors import Problem, UnsupportedProgram
from backfill.api.quantities import from_us, to_us
from backfill.api.source import Source
from backfill.planning.plan import read_header
from backfill.planning.workspace import Workspace
from backfill.protocol.hand_off_messages import (
    MOST_SHOWN_PARTITIONS,
    HandOffQuery,
    HandOffReport,
    HandOffSource,
)
from backfill.runtime.hand_off.broker_offsets import Topic, held_records
from backfill.runtime.hand_off.copy_checkpoint import (
    Marker,
    Placement,
    check_absolute,
    check_free,
    check_outlives,
    kafka_offset,
    overlap,
    place,
)
from backfill.runtime.hand_off.kafka_start_offsets import (
    NextOffsets,
    check_held,
    check_reaches_back,
    check_times_fit,
    kept_until_us,
    known_starts,
    offsets_after_history,
    still_held,
    with_empty_partitions,
)
from backfill.runtime.hand_off.starting_time import starting_time_us
from backfill.runtime.queries.earlier_attempts import begun_with, checkpoint_of
from backfill.runtime.queries.encoded_locations import is_encoded
from backfill.runtime.queries.run_state import ContinuedQuery, Run
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.spark_versions import NO_REPARTITION

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "RocksDBStateStoreProvider"
_OFFSET_LOG = {
    "spark.sql.streaming.offsetLog.formatVersion": "1",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
}
"""Properties that decide how Spark writes offsets, and their known values."""
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

_log = logging.getLogger(__name__)


def check_query(run: Run, spark: SparkSession, query: ContinuedQuery) -> None:
    """Checks whether the state of a query can be handed over, before it has read anything.

    Raises:
        BadInput: it cannot; the message says what to do.
    """
    if run.settings.hand_off is None:
        return
    placement = _placement(run.settings, query)
    check_absolute(placement)
    for other in run.destinations:
        if other.identity != query.identity and overlap(other.location, query.location):
            raise UnsupportedProgram(
                Problem(
                    "spec.handOff",
                    f"the queries {other.name} and {query.name} have the checkpointLocations"
                    f" {other.location} and {query.location}, which are the same or nested",
                    "give each query its own location, outside of the others",
                )
            )
    if query.writes_files:
        raise UnsupportedProgram(
            Problem(
                "spec.handOff",
                f"the query {query.name} writes files, and Spark's log of files begins with"
                " micro-batch 0, but the live application continues after the micro-batches of"
                " history",
                "write an Iceberg table, or write the files in foreachBatch",
            )
        )
    if query.ends and run.settings.hand_off.deployed:
        raise UnsupportedProgram(
            Problem(
                "spec.handOff.start",
                f"is Deploy, but the query {query.name} stops after the available input (trigger"
                " availableNow or once), so the live application would not continue with live"
                " traffic",
                "use Prepare, and start the application as usual once its state is written; or"
                " set another trigger in the program",
            )
        )
    _check_format(spark)
    check_outlives(placement, run.settings.plan)
    check_free(spark, placement)
    _check_repartition(spark, query, placement)
    for source in query.sources:
        run.goes_on(_goes_on(run, spark, source, may_grow=run.settings.hand_off.growing).reported)
    run.destined(query)


def hand_over(run: Run) -> bool:
    """Puts the checkpoint of every query where the program looks for it. Returns False if the run
    was stopped before. Without ``spec.handOff`` there is nothing to do.

    Raises:
        BadInput: Kafka no longer holds what comes after history, or a location is in use.
    """
    if run.settings.hand_off is None:
        return True
    began = time.monotonic()
    header = read_header(run.settings.plan_workspace)
    sessions = {query.identity: query.frame.sparkSession for query in run.queries}
    spark = next(iter(sessions.values()))
    names = sorted({name for query in run.destinations for name in query.sources})
    found = {name: _goes_on(run, spark, name) for name in names}
    lines = {name: kafka_offset(each.topic, each.offsets) for name, each in found.items()}
    placed: list[HandOffQuery] = []
    for query in run.destinations:
        if run.stopping.is_set():
            return False
        placement = _placement(run.settings, query)
        placed.append(place(sessions[query.identity], placement, header, lines))
        _log.info("the state of %s is in %s", query.name, query.location)
    run.handed_over(
        HandOffReport(
            sources=tuple(each.reported for each in found.values()),
            queries=tuple(placed),
            repeated_in=tuple(query.name for query in run.destinations if query.repeats),
            written=True,
            seconds=time.monotonic() - began,
        )
    )
    return True


def _placement(settings: RuntimeSettings, query: ContinuedQuery) -> Placement:
    assert settings.hand_off is not None, "it is handed over"
    if not query.location:
        raise UnsupportedProgram(
            Problem(
                "spec.handOff",
                f"the query {query.name} has no checkpointLocation, so it is unknown where to"
                " write its state",
                "set the option checkpointLocation in the program, or give the query a name and set"
                " spark.sql.streaming.checkpointLocation",
            )
        )
    return Placement(
        name=query.name,
        marker=Marker(uid=settings.uid, plan_id=settings.plan_id, query=query.identity),
        location=query.location,
        origin=_origin(settings, query),
        state_partitions=settings.hand_off.state_partitions,
    )


def _origin(settings: RuntimeSettings, query: ContinuedQuery) -> Workspace:
    return checkpoint_of(query.identity, settings.checkpoint_workspace)


def _check_format(spark: SparkSession) -> None:
    """Only the offset log of queries is known whose sources have no names in Spark."""
    for name, known in _OFFSET_LOG.items():
        given = str(spark.conf.get(name, known))
        if given.lower() != known:
            raise UnsupportedProgram(
                Problem(
                    "spec.handOff",
                    f"the application sets {name} to {given}, and offsets that Spark stores in"
                    " that form cannot be continued with Kafka offsets",
                    f"leave it at {known}",
                )
            )


def _check_repartition(spark: SparkSession, query: ContinuedQuery, placement: Placement) -> None:
    """Spark repartitions state in RocksDB only, and not at every location. It leaves a checkpoint
    that cannot be used where it tries to. State that is in one partition, whatever their number, it
    moves to another one, where the query does not look for it.
    """
    if placement.state_partitions is None or not query.stateful:
        return
    begun = begun_with(placement.origin)
    had, provider = (
        begun.get(name) or str(spark.conf.get(name)) for name in (_SHUFFLE_PARTITIONS, _PROVIDER)
    )
    if int(had) == placement.state_partitions:
        return
    why = fix = ""
    if NO_REPARTITION:
        raise UnsupportedProgram(
            Problem(
                "spec.handOff.statePartitions",
                f"is {placement.state_partitions}, but history runs with {had} partitions:"
                f" {NO_REPARTITION}",
                f"set {_SHUFFLE_PARTITIONS} to {placement.state_partitions} in"
                " spec.overrides.sparkConf, so that history runs with as many, and omit"
                " statePartitions",
            )
        )
    if query.undivided:
        why = (
            "which aggregates without keys, or has a limit, and therefore keeps its state in one"
            " partition"
        )
    elif not provider.endswith(f".{_ROCKSDB}"):
        package, _, store = provider.rpartition(".")
        why = f"which is kept in {store}"
        fix = f"set {_PROVIDER} in the application to {package}.{_ROCKSDB}"
    elif is_encoded(spark, query.location):
        why = (
            f"whose checkpointLocation {query.location} has characters, such as spaces, that are"
            " encoded in URIs"
        )
        fix = "give the query a checkpointLocation without such characters"
    if why:
        raise UnsupportedProgram(
            Problem(
                "spec.handOff.statePartitions",
                f"is {placement.state_partitions}, but history runs with {had} partitions, and"
                f" Spark cannot repartition the state of the query {query.name}, {why}",
                f"omit statePartitions{fix and ', or '}{fix}",
            )
        )


@dataclass(frozen=True, slots=True)
class _GoesOn:
    """Where a source goes on."""

    source: str
    topic: str
    offsets: NextOffsets
    kept_until_us: int | None
    starting_us: int | None
    """Time of the first records; None if the source continues by offsets."""

    @property
    def reported(self) -> HandOffSource:
        """The same for a report, which has room for some partitions."""
        until, starting = self.kept_until_us, self.starting_us
        return HandOffSource(
            source=self.source,
            topic=self.topic,
            partitions=len(self.offsets),
            offsets=_shown(self.offsets),
            kept_until=None if until is None else from_us(until),
            starting_timestamp=None if starting is None else from_us(starting),
        )


def _goes_on(run: Run, spark: SparkSession, name: str, *, may_grow: bool = False) -> _GoesOn:
    """Where a source continues, as Kafka is now. If history ``may_grow`` first, Kafka need not hold
    the records that follow it so far.
    """
    settings = run.settings
    of_source = f"spec.sources[{[each.name for each in settings.sources].index(name)}]"
    field = f"{of_source}.live.kafka.topic"
    options = kafka_options(run, name, field)
    plan, kept = settings.plan_workspace, settings.checkpoint_workspace
    header = read_header(plan)
    totals = next(each for each in header.sources if each.name == name)
    newest_us = header.inputs.end_us if totals.upper_us is None else totals.upper_us
    source, history, starting_us = _source(settings, name), dict[int, int](), None
    if source.kafka.identifies_records:
        history |= offsets_after_history(plan, name, kept)
        topic = Topic(source.topic, field, header.inputs.read_start_us, newest_us)
    else:
        starting_us = starting_time_us(plan, source, of_source, _margin_us(settings), kept)
        topic = Topic(source.topic, field, starting_us, starting_us)
    records = held_records(spark, options, topic)
    partitions, retention = records.partitions, records.retention
    now_us = to_us(datetime.now(UTC))
    if starting_us is not None:
        known = known_starts(header.plan_id, name, kept)
        new = {each: held for each, held in partitions.items() if each not in known}
        check_reaches_back(field, topic.name, starting_us, new, retention=retention, now_us=now_us)
        if not known and totals.rows:
            check_times_fit(field, topic.name, starting_us, new)
    offsets = with_empty_partitions(header.plan_id, name, history, partitions, kept)
    check_held(
        field, topic.name, still_held(offsets, partitions) if may_grow else offsets, partitions
    )
    until = kept_until_us(offsets, partitions, topic.newest_us, retention.us, now_us)
    return _GoesOn(name, topic.name, offsets, until, starting_us)


def _margin_us(settings: RuntimeSettings) -> int:
    margin = settings.hand_off.starting_timestamp_margin if settings.hand_off else None
    assert margin is not None, "the resource says it if a source has no offsets"
    return to_us(margin)


def kafka_options(run: Run, name: str, field: str) -> Mapping[str, str]:
    """The options with which the program reads a source from Kafka.

    Raises:
        UnsupportedProgram: it does not, or reads the source's table as well.
    """
    options = run.kafka_options.get(name)
    if options is None or name in run.streamed_tables:
        how = (
            f"streams from the table of source {name}"
            if name in run.streamed_tables
            else f"does not read source {name} from Kafka"
        )
        raise UnsupportedProgram(
            Problem(
                field,
                f"the program {how}, so live traffic cannot continue there",
                "read the topic in the program, or add a live candidate of type kafka to the"
                " source in the application's configuration of sources",
            )
        )
    return options


def _source(settings: RuntimeSettings, name: str) -> Source:
    return next(each for each in settings.sources if each.name == name)


def _shown(offsets: NextOffsets) -> dict[str, int]:
    return {str(each): offsets[each] for each in sorted(offsets)[:MOST_SHOWN_PARTITIONS]}
