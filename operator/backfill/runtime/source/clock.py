"""The clock of streams: Spark's own source ``rate-micro-batch``, of which each micro-batch is one
step. A source of the plan is a function over its ticks, which reads what the step has.

So all sources of a query are at the same step, a batch that is run again reads the same rows, and
Spark needs no process of Python but those of its tasks. What a task reads is in a local property of
the thread that runs the batch, which Spark sends to every task of its jobs.
"""

import base64
import json
import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from backfill.api.errors import InvalidPlanInput, PlanCorrupt, Problem
from backfill.runtime.catalyst import kind_of
from backfill.runtime.source.step_tasks import StepTask
from backfill.runtime.spark_versions import MAPS_IN_ARROW

if TYPE_CHECKING:
    import pyarrow as pa

_FORMAT = "rate-micro-batch"
_SOURCE, _TOPIC = "source", "topic"
_STEPS = 1 << 40
"""Timestamps of a source, in milliseconds: the first is that of its first step, and the next one is
a step further. So an offset in a checkpoint says which source it is of.
"""

Ticks = Iterator["pa.RecordBatch"]
ReadTask = Callable[[StepTask, int, int, frozenset[str] | None], Ticks]
"""Reads what a task has to: of a step, with the number of the task, and the columns that matter."""


def clock(spark: SparkSession, source: str, place: int, tasks: int, topic: str | None) -> DataFrame:
    """The ticks of a source, one for each of its tasks in every step.

    Args:
        place: of the source among those of the plan.
        tasks: number of tasks of a step.
        topic: the Kafka topic that the source stands for, if it does.
    """
    options: dict[str, str | int] = {
        _SOURCE: source,
        **({} if topic is None else {_TOPIC: topic}),
        "rowsPerBatch": tasks,
        "numPartitions": tasks,
        "startTimestamp": place * _STEPS,
        "advanceMillisPerBatch": 1,
    }
    # not spark.readStream, which is replaced for the program
    return DataStreamReader(spark).format(_FORMAT).options(**options).load()


def is_clock(node: JavaObject) -> bool:
    """Whether a node gives the ticks of a source."""
    return bool(
        kind_of(node) == "StreamingRelationV2"
        and node.sourceName() == _FORMAT
        and node.extraOptions().containsKey(_SOURCE)
    )


def is_source(node: JavaObject) -> bool:
    """Whether a node is a source of the plan: a function over ticks."""
    return kind_of(node) in MAPS_IN_ARROW and is_clock(node.child())


def source_of(reader: JavaObject) -> str:
    """The name of the source that a node is."""
    return str(reader.child().extraOptions().get(_SOURCE))


def topic_of(reader: JavaObject) -> str | None:
    """The Kafka topic that a source stands for; None where rows have their table's columns only."""
    topic = reader.child().extraOptions().get(_TOPIC)
    return None if topic is None else str(topic)


def read_of_offset(offset: str) -> tuple[int, int]:
    """What an offset in a checkpoint says: the place of its source in the plan, and the number of
    steps that are read.

    Raises:
        ValueError, KeyError, TypeError: it is no offset of the clock.
    """
    return divmod(int(json.loads(offset)["timestamp"]), _STEPS)


@dataclass(frozen=True, slots=True)
class Announcement:
    """What tasks read of a source in a step."""

    source: str
    text: str

    @classmethod
    def of(
        cls, source: str, step: int, tasks: Sequence[StepTask], columns: Set[str] | None
    ) -> "Announcement":
        """For these tasks; ``columns`` are those that matter, None for all."""
        said = {
            "step": step,
            "columns": None if columns is None else sorted(columns),
            "tasks": [
                base64.b64encode(zlib.compress(pickle.dumps(task))).decode() for task in tasks
            ],
        }
        return cls(source, json.dumps(said))

    def make(self, spark: SparkSession) -> None:
        """Tells it to the tasks of jobs that this thread starts from now on."""
        spark.sparkContext.setLocalProperty(_property(self.source), self.text)

    @contextmanager
    def made(self, spark: SparkSession) -> Iterator[None]:
        """Tells it to the tasks of jobs that this thread starts meanwhile."""
        context: Any = spark.sparkContext
        before = context.getLocalProperty(_property(self.source))
        self.make(spark)
        try:
            yield
        finally:
            context.setLocalProperty(_property(self.source), before)


def reader_of_ticks(
    source: str, place: int, tasks: int, read_task: ReadTask
) -> Callable[[Ticks], Ticks]:
    """The function over the ticks of a source."""

    def read(ticks: Ticks) -> Ticks:
        import pyarrow as pa

        for batch in ticks:
            times, values = (batch.column(name).cast(pa.int64()) for name in ("timestamp", "value"))
            for at_us, value in zip(times.to_pylist(), values.to_pylist(), strict=True):
                given, step = divmod(at_us // 1_000, _STEPS)
                if given != place:
                    raise PlanCorrupt(
                        "the checkpoint has another source where the application now reads"
                        f" {source}: the order of its sources has changed"
                    )
                number = value % tasks
                task, columns = _announced(source, step, number)
                if task is not None:
                    yield from read_task(task, step, number, columns)

    return read


def _announced(
    source: str, step: int, number: int
) -> tuple[StepTask | None, frozenset[str] | None]:
    from pyspark import TaskContext

    context = TaskContext.get()
    said: dict[str, Any] = json.loads(
        (context and context.getLocalProperty(_property(source))) or "{}"
    )
    if said.get("step") != step:
        raise InvalidPlanInput(
            Problem(
                "",
                f"rows of {source} are read in a thread that cannot be attributed to a batch of"
                " foreachBatch",
                "do it in the function's own thread, or in threads that it starts with threading or"
                " a ThreadPoolExecutor",
            )
        )
    columns, tasks = said["columns"], said["tasks"]
    if number >= len(tasks):
        return None, None
    task = pickle.loads(zlib.decompress(base64.b64decode(tasks[number])))
    assert isinstance(task, StepTask)
    return task, None if columns is None else frozenset(columns)


def _property(source: str) -> str:
    return f"backfill.step.{source}"
