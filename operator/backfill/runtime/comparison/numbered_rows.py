"""The rows of files, each with a number, by which some of them are read again.

The second time, files without such rows are not opened, and only these rows pass through the JVM.
Their numbers come as a DataFrame, however many there are.
"""

import pickle
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from backfill.planning.plan import Split
from backfill.planning.rows.pinned_table import SourceTable
from backfill.runtime.source.garbage_collection import exempt_from_collection
from backfill.runtime.source.source_frame import source_schema
from backfill.runtime.spark_versions import to_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

NUMBER: Final = "__backfill_number"
NUMBER_BITS: Final = 54
"""Numbers are smaller than two to the power of this."""
_ROW_BITS = 32


class NumberedRows:
    """The rows of all tasks' splits. A number is the place of a split in them, and the place of the
    row among those of the split.
    """

    def __init__(self, spark: SparkSession, table: SourceTable, tasks: Sequence[tuple[Split, ...]]):
        self._spark = spark
        self._table = table
        self._tasks = tasks
        self._schema = source_schema(table, with_record=False)
        assert sum(map(len, tasks)) < 1 << (NUMBER_BITS - _ROW_BITS), "they are in memory here"

    def all(self) -> DataFrame:
        """All rows, with the column ``NUMBER``."""
        table, target = self._table, self._target()
        firsts = accumulate((len(splits) for splits in self._tasks), initial=0)
        # each task takes only its own splits apart
        packed = [
            (first, pickle.dumps(splits))
            for first, splits in zip(firsts, self._tasks, strict=False)
        ]

        def read(tasks: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            from backfill.runtime.source.split_reading import read_split

            exempt_from_collection("batch")
            for batch in tasks:
                for task in batch.column(0).to_pylist():
                    first, splits = packed[task]
                    for place, split in enumerate(pickle.loads(splits), first):
                        yield from _numbered(read_split(table, split, target), place)

        count = len(self._tasks)
        given = StructType([*self._schema, StructField(NUMBER, LongType())])
        return self._spark.range(0, count, 1, max(count, 1)).mapInArrow(read, given)

    def chosen(self, numbers: DataFrame) -> DataFrame:
        """The rows with these numbers, which a DataFrame has in the column ``NUMBER``, with its
        other columns.
        """
        table, target = self._table, self._target()
        packed = [pickle.dumps(split) for splits in self._tasks for split in splits]

        def read(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            from backfill.runtime.source.split_reading import read_split

            exempt_from_collection("batch")
            for place, wanted in _by_split(batches):
                split = pickle.loads(packed[place])
                yield from _only(wanted, _numbered(read_split(table, split, target), place))

        marks = [field for field in numbers.schema if field.name != NUMBER]
        of_one_split = F.shiftright(NUMBER, _ROW_BITS)
        # a row has few bytes, but a file must be read for it
        shared = numbers.repartition(max(len(self._tasks), 1), of_one_split)
        return shared.mapInArrow(read, StructType([*self._schema, *marks]))

    def _target(self) -> "pa.Schema":
        return to_arrow_schema(self._schema)


def _numbered(rows: Iterator["pa.RecordBatch"], place: int) -> Iterator["pa.RecordBatch"]:
    import numpy as np
    import pyarrow as pa

    first = place << _ROW_BITS
    for batch in rows:
        end = first + batch.num_rows
        yield batch.append_column(NUMBER, pa.array(np.arange(first, end)))
        first = end


def _by_split(batches: Iterator["pa.RecordBatch"]) -> Iterator[tuple[int, "pa.Table"]]:
    """The wanted numbers of each split in order, with what belongs to them."""
    import numpy as np
    import pyarrow as pa

    given = list(batches)
    if not given:
        return
    wanted = pa.Table.from_batches(given).sort_by(NUMBER).combine_chunks()
    places, firsts = np.unique(wanted[NUMBER].to_numpy() >> _ROW_BITS, return_index=True)
    ends = np.append(firsts[1:], wanted.num_rows)
    for place, first, end in zip(places.tolist(), firsts.tolist(), ends.tolist(), strict=True):
        yield place, wanted.slice(first, end - first)


def _only(wanted: "pa.Table", rows: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Picks the wanted rows out of those of a split, and stops after the last one."""
    import numpy as np
    import pyarrow as pa

    numbers, marks = wanted[NUMBER].to_numpy(), wanted.drop_columns(NUMBER)
    end = 0
    for batch in rows:
        there, start = batch[NUMBER].to_numpy(), end
        end = int(np.searchsorted(numbers, there[-1], "right"))
        if end > start:
            chosen = batch.take(pa.array(numbers[start:end] - there[0])).drop_columns(NUMBER)
            (of_chosen,) = marks.slice(start, end - start).combine_chunks().to_batches()
            columns = [*chosen.schema, *marks.schema]
            yield pa.RecordBatch.from_arrays(
                [*chosen.columns, *of_chosen.columns], schema=pa.schema(columns)
            )
        if end == len(numbers):
            return
