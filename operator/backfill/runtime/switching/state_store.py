"""Where a stream keeps its state: in memory if it surely fits there, else in RocksDB.

A setting of the program or the resource takes precedence, and a query keeps the store it began
with: Spark cannot read the state of one store with another.
"""

import logging
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace
from backfill.runtime.batch.state_rows import kept_rows
from backfill.runtime.batch.time_reach import Unbounded
from backfill.runtime.catalyst import heap_bytes
from backfill.runtime.queries.earlier_attempts import begun_with
from backfill.runtime.queries.logical_plan import watermark_delay_us
from backfill.runtime.queries.state_size import most_bytes

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = f"{_PACKAGE}.RocksDBStateStoreProvider"
HEAP = f"{_PACKAGE}.HDFSBackedStateStoreProvider"
_JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
_MEMORY_SHARE = 0.25
"""Of an executor's memory, for the state of all queries: tasks need the rest. A single executor may
come to hold all of it, where others are lost or keys are uneven."""

_log = logging.getLogger(__name__)
_starting = threading.Lock()
"""Held while a session has the properties of one query."""


@dataclass(frozen=True, slots=True)
class StateStore:
    """What a query keeps its state in."""

    reason: str
    """The store and why, for people; empty for a query without state."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """What its session needs while it starts."""

    @contextmanager
    def in_session(self, spark: SparkSession) -> Iterator[None]:
        """Sets the properties for a query that is started meanwhile: it copies its session."""
        with _starting:
            for key, value in self.properties.items():
                spark.conf.set(key, value)
            try:
                yield
            finally:
                for key in self.properties:
                    spark.conf.unset(key)


def choose_state_store(
    frame: DataFrame, header: PlanHeader, checkpoint: Workspace, outputs: int
) -> StateStore:
    """The state store of the query of a streaming DataFrame. ``outputs`` is the number of the
    queries that share the memory.
    """
    spark = frame.sparkSession
    if (begun := begun_with(checkpoint).get(PROVIDER)) is not None:
        return StateStore(f"{_name(begun)}, as in earlier attempts")
    with _starting:
        wanted, join_format = (spark.conf.get(key, None) for key in (PROVIDER, _JOIN_FORMAT))
    if wanted is not None:
        return StateStore(
            f"{_name(wanted)}, as set by the program, the SparkApplication or the Backfill"
        )
    if join_format not in {None, "1", "2"}:
        return StateStore(f"RocksDB, as required by {_JOIN_FORMAT}", {PROVIDER: ROCKSDB})
    needed, why = _estimate(frame, header)
    if needed == 0:
        return StateStore("", {PROVIDER: ROCKSDB})
    budget = _MEMORY_SHARE * heap_bytes(spark) / max(outputs, 1)
    if needed > budget:
        reason = (
            why or f"it may need {_bytes(needed)} of memory, but only {_bytes(budget)} is available"
        )
        return StateStore(f"RocksDB: {reason}", {PROVIDER: ROCKSDB})
    return StateStore(
        f"memory: it needs at most {_bytes(needed)} of {_bytes(budget)} available",
        {PROVIDER: HEAP},
    )


def may_keep_state(frame: DataFrame, header: PlanHeader) -> bool:
    """Whether the query of a streaming DataFrame has state, as far as is known."""
    try:
        return bool(kept_rows(frame, header.inputs.arrival_columns))
    except Exception:
        _log.exception("whether a query keeps state could not be determined")
        return True


def _estimate(frame: DataFrame, header: PlanHeader) -> tuple[float, str]:
    """The most bytes of memory that the state needs, and why that is unknown if it is."""
    unknown = float("inf")
    try:
        kept = kept_rows(frame, header.inputs.arrival_columns)
    except Exception as error:  # no program fails for what only its speed depends on
        _log.exception("the state of a query could not be estimated")
        return unknown, f"its state could not be estimated ({type(error).__name__})"
    if isinstance(kept, Unbounded):
        return unknown, kept.reason
    needed = most_bytes(kept, header, watermark_delay_us(frame))
    return needed, "it is unknown how much it needs" if needed == unknown else ""


def _name(provider: str) -> str:
    return {ROCKSDB: "RocksDB", HEAP: "memory"}.get(provider, provider)


def _bytes(number: float) -> str:
    return f"{math.ceil(number / 2**20):,} MiB"
