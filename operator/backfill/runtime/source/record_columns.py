"""Columns of Kafka records that the table lacks. The source makes them, so that they are columns
like all others.

Spark optimises literals away: a program that groups by ``topic`` would have other state than in
production.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

_PREFIX = "__backfill_record_"
TOPIC, PARTITION, OFFSET, KEY, HEADERS = (
    f"{_PREFIX}topic",
    f"{_PREFIX}partition",
    f"{_PREFIX}offset",
    f"{_PREFIX}key",
    f"{_PREFIX}headers",
)
HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
"""The headers of a record, as Spark's Kafka source gives them."""
_ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RECORD_COLUMNS = {
    TOPIC: StringType(),
    PARTITION: IntegerType(),
    OFFSET: LongType(),
    KEY: BinaryType(),
    HEADERS: HEADERS_TYPE,
}
"""The columns' names and types; they come after the table's."""

_ROW_BITS, _TASK_BITS, _STEP_BITS = 30, 12, 21
MOST_TASKS = 1 << _TASK_BITS
"""More tasks of a step have no offsets."""


@dataclass(frozen=True)
class RecordColumns:
    """The record columns of a task's rows: all in one partition,
    with offsets that are unique in the source.

    Offsets grow from step to step and are the same whenever a step is read, but have gaps.
    """

    topic: str
    first_offset: int

    @classmethod
    def of(cls, topic: str, step: int, task: int) -> "RecordColumns":
        """The record columns for a task of a step.

        Raises:
            OverflowError: there are more steps or tasks than offsets can number.
        """
        if step >> _STEP_BITS or task >> _TASK_BITS:
            raise OverflowError(
                f"step {step}, task {task}: no room left for offsets; set kafka.offsetColumn of"
                " the source"
            )
        return cls(topic, (step << _TASK_BITS | task) << _ROW_BITS)

    def added_to(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a task, with the record columns appended.

        Raises:
            OverflowError: the task has more rows than offsets can number.
        """
        offset = self.first_offset
        for batch in batches:
            rows = batch.num_rows
            if (offset + rows - self.first_offset) >> _ROW_BITS:
                raise OverflowError(
                    f"more than {1 << _ROW_BITS} rows in a task; set kafka.offsetColumn of the"
                    " source"
                )
            added = [
                pa.repeat(pa.scalar(self.topic), rows),
                pa.repeat(pa.scalar(0, pa.int32()), rows),
                pa.array(np.arange(offset, offset + rows, dtype=np.int64)),
                pa.nulls(rows, pa.binary()),
                pa.nulls(rows, _ARROW_HEADERS),
            ]
            offset += rows
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *added], names=[*batch.schema.names, *RECORD_COLUMNS]
            )
