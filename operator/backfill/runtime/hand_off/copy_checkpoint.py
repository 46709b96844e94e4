"""Puts the state of a query where the program looks for its checkpoint.

History's own checkpoint is never changed: it is copied, the copy is given the state partitions and
the Kafka offsets that live traffic needs, and read back. A marker is written before the first file
and completed after the last one. An attempt that finds it incomplete removes everything else and
copies again, so that a driver may be killed at any moment, and a failed repartition leaves nothing
behind.
"""

import json
import logging
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from backfill.api.base import Model
from backfill.api.errors import BackfillError, Problem, UnsupportedProgram
from backfill.api.workspace_locations import is_below, is_relative
from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace
from backfill.protocol.hand_off_messages import HandOffQuery
from backfill.runtime.catalyst import active
from backfill.runtime.hand_off import checkpoint_format
from backfill.runtime.hand_off.hadoop_files import Files
from backfill.runtime.hand_off.kafka_start_offsets import NextOffsets
from backfill.runtime.hand_off.offset_log import offsets_in_log
from backfill.runtime.spark_versions import repartition_state

MARKER = "_backfill_hand_off.json"
"""File beside those of the checkpoint. Spark ignores it."""

_REMOVED = ("plans", "checkpoints")
"""Directories in a Backfill's workspace that are removed with it."""

_log = logging.getLogger(__name__)


class Marker(Model):
    """Who puts a checkpoint there."""

    uid: str
    """UID of the Backfill."""
    plan_id: str
    """ID of the plan that was read."""
    query: str
    """Identity of the query."""
    placed: HandOffQuery | None = None
    """What was put there; null until it is complete."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A query, and where its checkpoint goes."""

    name: str
    marker: Marker
    location: str
    """Where the program looks for it."""
    origin: Workspace
    """History's checkpoint."""
    state_partitions: int | None
    """How many partitions the state must have; None for as many as it has."""


def overlap(one: str, other: str) -> bool:
    """Whether two locations are the same, or one of them is below the other."""
    first, second = _normalized(one), _normalized(other)
    return is_below(first, second) or is_below(second, first)


def _normalized(location: str) -> str:
    """A location without what Hadoop drops from paths: repeated slashes, ``.`` and ``..``."""
    scheme, _, path = location.removeprefix("file:").rpartition("://")
    path = posixpath.normpath(f"/{path.lstrip('/')}")
    return f"{scheme}:/{path}" if scheme else path


def check_absolute(placement: Placement) -> None:
    """Checks that drivers with other working directories find a checkpoint.

    Raises:
        UnsupportedProgram: its location is relative.
    """
    if is_relative(placement.location):
        raise UnsupportedProgram(
            Problem(
                "spec.handOff",
                f"the checkpointLocation of the query {placement.name}, {placement.location}, is"
                " relative, so the live application may look for it elsewhere",
                "use an absolute location in the program, with a scheme or beginning with /, such"
                " as s3a://bucket/path",
            )
        )


def check_outlives(placement: Placement, plan: str) -> None:
    """Checks that a checkpoint is not among what is removed with the Backfill. ``plan`` is the
    location of the plan's directory, ``WORKSPACE/plans/ID``.

    Raises:
        UnsupportedProgram: it is, or this is within it.
    """
    workspace = plan.rstrip("/").rsplit("/", 2)[0]
    if any(overlap(placement.location, f"{workspace}/{each}") for each in _REMOVED):
        raise UnsupportedProgram(
            Problem(
                "spec.handOff",
                f"the checkpoint location of the query {placement.name}, {placement.location},"
                f" overlaps directories in the workspace of this Backfill, {workspace}, that are"
                " removed with the Backfill",
                "give the query a checkpointLocation outside of the workspace",
            )
        )


def check_free(spark: SparkSession, placement: Placement) -> None:
    """Checks that nothing is where the checkpoint goes, except what this Backfill has put there.

    Raises:
        UnsupportedProgram: something is there.
    """
    _own(Files(spark, placement.location), placement)


def place(
    spark: SparkSession,
    placement: Placement,
    header: PlanHeader,
    offsets: Mapping[str, str],
) -> HandOffQuery:
    """Puts the checkpoint there, unless it is. ``header`` is that of history's plan,
    ``offsets`` are by source those of :func:`kafka_offset`.

    Raises:
        UnsupportedProgram: something else is there.
        BackfillError: the checkpoint is not what this version of the project expects.
    """
    target = Files(spark, placement.location)
    known = _own(target, placement)
    if known is not None and known.placed is not None:
        return known.placed
    # the marker comes first: an object store removes file by file, and a driver may be killed then
    target.write(MARKER, placement.marker.model_dump_json(by_alias=True))
    for name in target.names():
        if name != MARKER:
            target.remove(name)
    placed = _copied(spark, placement, target, header, offsets)
    done = placement.marker.model_copy(update={"placed": placed})
    target.write(MARKER, done.model_dump_json(by_alias=True))
    return placed


def _own(target: Files, placement: Placement) -> Marker | None:
    """What this Backfill has put there; None if nothing is there."""
    names = target.names()
    if not names:
        return None
    if MARKER in names:
        found = _marker(target.read(MARKER))
        if found is None or found.model_copy(update={"placed": None}) == placement.marker:
            return found
    handed = MARKER in names
    who = ": another Backfill, or an earlier plan of this one, has written state there"
    or_remove = ", or remove the state there if no application has started from it"
    raise UnsupportedProgram(
        Problem(
            "spec.handOff",
            f"the checkpoint location of the query {placement.name}, {placement.location}, is in"
            f" use{who if handed else ''}",
            f"give the query a new, empty checkpointLocation{or_remove if handed else ''}: the"
            " live application continues from the state that this Backfill puts there",
        )
    )


def _marker(text: str) -> Marker | None:
    """A marker; None if a driver was killed while it wrote it, so that nothing is complete."""
    try:
        json.loads(text)
    except ValueError:
        return None
    return Marker.model_validate_json(text)


def _copied(
    spark: SparkSession,
    placement: Placement,
    target: Files,
    header: PlanHeader,
    offsets: Mapping[str, str],
) -> HandOffQuery:
    origin = placement.origin
    paths = origin.files()
    batch = checkpoint_format.last_batch(origin.names("commits"), header.steps)
    target.copy(Files(spark, origin.for_spark), checkpoint_format.needed(paths, batch))
    stateful = checkpoint_format.is_stateful(paths)
    entry = target.read(f"offsets/{batch}")
    had = int(checkpoint_format.conf_of(entry)[checkpoint_format.SHUFFLE_PARTITIONS])
    wanted = placement.state_partitions or had
    if stateful and wanted != had:
        _log.info(
            "repartitioning the state of %s from %s to %s partitions", placement.name, had, wanted
        )
        with active(spark):
            repartition_state(spark, placement.location, wanted)
        batch += 1
        entry = target.read(f"offsets/{batch}")
    of_plan = [each.name for each in header.inputs.sources]
    names = checkpoint_format.sources_of(entry, header.steps, of_plan)
    lines = [offsets[name] for name in names]
    conf = {checkpoint_format.SHUFFLE_PARTITIONS: str(wanted)}
    target.remove(f"offsets/{batch}")
    if target.exists(f"offsets/{batch}.crc"):
        target.remove(f"offsets/{batch}.crc")
    target.write(f"offsets/{batch}", checkpoint_format.with_sources(entry, lines, conf))
    read_back = offsets_in_log(spark, placement.location)
    if read_back != (batch, batch, lines):
        raise BackfillError(
            f"Spark reads the offsets of {placement.location} as {read_back}, but"
            f" {(batch, batch, lines)} were written"
        )
    return HandOffQuery(
        query=placement.name,
        checkpoint_location=placement.location,
        query_id=json.loads(target.read("metadata"))["id"],
        batch=batch,
        state_partitions=wanted if stateful else 0,
        sources=tuple(dict.fromkeys(names)),
    )


def kafka_offset(topic: str, offsets: NextOffsets) -> str:
    """The offset of Spark's Kafka source, as its checkpoints have it."""
    found: dict[str, Any] = {topic: {str(each): offsets[each] for each in sorted(offsets)}}
    return json.dumps(found, separators=(",", ":"))
