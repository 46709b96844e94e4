"""What ``DataFrame.write``, ``writeTo`` and ``mergeInto`` give: PySpark's own writers. While a
function of ``foreachBatch`` runs, their writes go into the branches of the outputs.

PySpark's writers hand every call to a writer in the JVM; only that one is replaced.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2

from backfill.api.errors import BadInput, Problem, UnsupportedProgram
from backfill.runtime.catalyst import analyzed, frame_of, save
from backfill.runtime.spark_versions import NO_MERGE_INTO, MergeIntoWriter
from backfill.runtime.switching.batch_function import (
    BatchInProgress,
    WriteTarget,
    batch_beside,
    batch_of,
    not_the_function,
    unknown_thread,
)
from backfill.runtime.switching.batch_statements import Statement, merge_of
from backfill.runtime.switching.kafka_records import TOPIC
from backfill.runtime.switching.main_program_writes import (
    NO_EFFECT,
    PLACES,
    CheckedMerge,
    CheckedWriter,
    CheckedWriterV2,
    MainProgram,
)

_KAFKA = "kafka"
"""Format that always appends, whatever the mode."""
_MAY_BE_DELTA = (None, "delta")
"""Formats that may know transactions; the others ignore their options."""


def write(frame: DataFrame, program: MainProgram) -> DataFrameWriter:
    """``DataFrame.write``."""
    batch = _batch(frame)
    if batch is None:
        return CheckedWriter(frame, program)
    return BatchWriter(frame, batch) if batch.redirects else DataFrameWriter(frame)


def write_to(frame: DataFrame, table: str, program: MainProgram) -> DataFrameWriterV2:
    """``DataFrame.writeTo``."""
    batch = _batch(frame)
    if batch is None:
        return CheckedWriterV2(frame, table, program)
    return (
        BatchWriterV2(frame, table, batch) if batch.redirects else DataFrameWriterV2(frame, table)
    )


def merge_into(
    frame: DataFrame, table: str, condition: Column, program: MainProgram
) -> MergeIntoWriter:
    """``DataFrame.mergeInto``."""
    batch = _batch(frame)
    if batch is None:
        return CheckedMerge(frame, table, condition, program)
    if not batch.redirects:
        return MergeIntoWriter(frame, table, condition)
    return BatchMerge(frame, table, condition, batch)


def write_statement(
    batch: BatchInProgress, rows: DataFrame, statement: Statement, how: str
) -> None:
    """Stages the rows of a statement.

    Raises:
        BadInput: it does not just add rows, or put them in the place of others.
    """
    problem = _not_redirected(statement, how) if statement.problem else None
    if problem is None and statement.columns:
        if len(statement.columns) != len(rows.columns):
            problem = _not_redirected(statement, how)
        else:
            with not_the_function():
                rows = rows.toDF(*statement.columns)
    batch.write(
        rows,
        WriteTarget(
            statement.table,
            how,
            statement.by_position,
            keys=statement.keys,
            replaces=statement.replaces,
            problem=problem,
        ),
    )


def refuse_part(batch: BatchInProgress, part: Statement, how: str) -> BadInput:
    """Ends the run because of a statement within another one. Returns the error, to be raised."""
    problem = "is part of another statement: run it as a separate statement"
    return batch.refuse(UnsupportedProgram(_not_redirected(replace(part, problem=problem), how)))


class BatchMerge(MergeIntoWriter):
    """``DataFrame.mergeInto`` within a function of ``foreachBatch``."""

    def __init__(self, frame: DataFrame, table: str, condition: Column, batch: BatchInProgress):
        super().__init__(frame, table, condition)
        self._frame = frame
        self._table = table
        self._batch = batch

    def merge(self) -> None:
        """Stages the rows, if they are put in the place of those with the same keys."""
        with not_the_function():
            statement = (
                Statement(self._table, analyzed(self._frame), "MERGE", problem=NO_MERGE_INTO)
                if NO_MERGE_INTO
                else merge_of(self._jwriter.mergeCommand(), self._frame)
            )
            rows = self._frame
            if not statement.problem:
                rows = frame_of(rows.sparkSession, statement.rows)
        write_statement(self._batch, rows, replace(statement, table=self._table), "mergeInto")


def _batch(frame: DataFrame) -> BatchInProgress | None:
    """The batch that a DataFrame is written in; None outside of functions."""
    batch = batch_of(frame.sparkSession)
    if batch is None and (other := batch_beside()) is not None:
        raise other.refuse(unknown_thread("a DataFrame is written"))
    return batch


class BatchWriter(DataFrameWriter):
    """``DataFrame.write`` within a function of ``foreachBatch``."""

    def __init__(self, frame: DataFrame, batch: BatchInProgress):
        super().__init__(frame)
        self._jwrite: Any = _Write(frame, batch)


class BatchWriterV2(DataFrameWriterV2):
    """``DataFrame.writeTo`` within a function of ``foreachBatch``."""

    def __init__(self, frame: DataFrame, table: str, batch: BatchInProgress):
        self._df = frame
        self._spark = frame.sparkSession
        self._jwriter: Any = _WriteTo(frame, table, batch)


class _Write:
    """Stands for Spark's DataFrameWriter in the JVM, with its methods."""

    def __init__(self, frame: DataFrame, batch: BatchInProgress):
        self._frame = frame
        self._batch = batch
        self._format: str | None = None
        self._mode: str | None = None
        self._options: dict[str, Any] = {}

    def format(self, source: str) -> "_Write":
        self._format = source.lower()
        return self

    def mode(self, mode: str) -> "_Write":
        self._mode = mode.lower()
        return self

    def option(self, key: str, value: Any) -> "_Write":
        self._options[key.lower()] = value
        return self

    def _layout(self, *_: Any) -> "_Write":
        """The output table has its own layout."""
        return self

    partitionBy = bucketBy = sortBy = clusterBy = _layout

    def save(self, path: str | None = None) -> None:
        if self._format in NO_EFFECT:
            self._really()
            return
        how = f"write.format({self._format}).save" if self._format else "write.save"
        options = self._options
        if self._format == _KAFKA:
            self._send(options.get("topic"), how)
            return
        place = path or next((options[name] for name in PLACES if options.get(name)), None)
        self._append(place, how)

    def _send(self, topic: str | None, how: str) -> None:
        """Records with topics of their own are those of the output with the query's name."""
        with not_the_function():
            if topic is None and TOPIC not in self._frame.columns:
                raise self._batch.refuse(_no_place(how))
        place = self._batch.called if topic is None else topic
        self._batch.write(self._frame, WriteTarget(place, how, records=True, topic=topic))

    def insertInto(self, table: str) -> None:
        self._append(table, "write.insertInto", by_position=True, always_appends=True)

    def saveAsTable(self, name: str) -> None:
        self._append(name, "write.saveAsTable")

    def jdbc(self, url: str, table: str, properties: Any) -> None:
        self._append(table, "write.jdbc")

    def parquet(self, path: str) -> None:
        self._append(path, "write.parquet")

    def json(self, path: str) -> None:
        self._append(path, "write.json")

    def csv(self, path: str) -> None:
        self._append(path, "write.csv")

    def orc(self, path: str) -> None:
        self._append(path, "write.orc")

    def text(self, path: str) -> None:
        self._append(path, "write.text")

    def xml(self, path: str) -> None:
        self._append(path, "write.xml")

    def _append(
        self,
        place: str | None,
        how: str,
        *,
        by_position: bool = False,
        always_appends: bool = False,
    ) -> None:
        if place is None:
            raise self._batch.refuse(_no_place(how))
        writes = self._mode in ("append", "overwrite") or (self._mode is None and always_appends)
        destination = WriteTarget(
            str(place),
            how,
            by_position,
            replaces=self._mode == "overwrite",
            problem=None if writes else _not_appending(place, how, self._mode),
            transaction=_transaction(self._format, self._options),
        )
        self._batch.write(self._frame, destination)

    def _really(self) -> None:
        with not_the_function():
            save(self._frame, str(self._format), self._mode or "append", self._options)


class _WriteTo:
    """Stands for Spark's DataFrameWriterV2 in the JVM, with its methods."""

    def __init__(self, frame: DataFrame, table: str, batch: BatchInProgress):
        self._frame = frame
        self._table = table
        self._batch = batch
        self._format: str | None = None
        self._options: dict[str, Any] = {}

    def using(self, provider: str) -> "_WriteTo":
        self._format = provider.lower()
        return self

    def option(self, key: str, value: Any) -> "_WriteTo":
        self._options[key.lower()] = value
        return self

    def options(self, options: Mapping[str, Any]) -> "_WriteTo":
        for key, value in options.items():
            self.option(key, value)
        return self

    def _kept(self, *_: Any) -> "_WriteTo":
        """The output table has its own format, properties and layout."""
        return self

    tableProperty = partitionedBy = clusterBy = _kept

    def append(self) -> None:
        transaction = _transaction(self._format, self._options)
        destination = WriteTarget(self._table, "writeTo.append", transaction=transaction)
        self._batch.write(self._frame, destination)

    def create(self) -> None:
        self._refuse("create", None)

    def replace(self) -> None:
        self._replace("replace")

    def createOrReplace(self) -> None:
        self._replace("createOrReplace")

    def overwrite(self, condition: Any) -> None:
        self._refuse("overwrite", "overwrite")

    def overwritePartitions(self) -> None:
        self._replace("overwritePartitions")

    def _replace(self, call: str) -> None:
        destination = WriteTarget(self._table, f"writeTo.{call}", replaces=True)
        self._batch.write(self._frame, destination)

    def _refuse(self, call: str, mode: str | None) -> None:
        how = f"writeTo.{call}"
        problem = _not_appending(self._table, how, mode)
        self._batch.write(self._frame, WriteTarget(self._table, how, problem=problem))


def _transaction(form: str | None, options: Mapping[str, Any]) -> tuple[str, int] | None:
    """The transaction of Delta Lake that a write belongs to, by its format and its options, both in
    lower case.
    """
    application, version = options.get("txnappid"), str(options.get("txnversion"))
    numbered = version.isascii() and version.isdecimal()
    if form not in _MAY_BE_DELTA or application is None or not numbered:
        return None
    return str(application), int(version)


def _no_place(how: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "",
            f"foreachBatch writes with {how} without a table, topic or path",
            "specify the table in the call or in the option path, table or topic",
        )
    )


def _not_appending(place: str, how: str, mode: str | None) -> Problem:
    what = {
        "overwrite": "replaces some rows",
        "ignore": "writes nothing if the table already exists",
    }.get(mode or "", "fails if the table already exists")
    return Problem(
        "",
        f"foreachBatch writes to {place} with {how} in a mode that {what}",
        'a backfill appends each batch: write with mode("append") or writeTo(...).append()',
    )


def _not_redirected(statement: Statement, how: str) -> Problem:
    what = statement.problem or "lists a different number of columns than it has"
    fix = (
        'a backfill can redirect appended rows (mode("append"), INSERT INTO), and merges by equal'
        " columns that update and insert whole rows, with the same values for the same columns"
    )
    return Problem("", f"foreachBatch writes to {statement.table} with {how}, which {what}", fix)
