"""Installs the readers, writers and queries of a backfill in classic PySpark.

Only the places are replaced from which the application gets them: properties of the session and of
the DataFrame, and the start and stop of a SparkContext. What it gets are subclasses of PySpark's
classes.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader, DataFrameWriterV2
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from backfill.runtime.early_java import early_gateway
from backfill.runtime.queries.progress_listener import ListenedSessions, ProgressListener
from backfill.runtime.queries.run_state import ProgramRun, Run, failed
from backfill.runtime.session_conf import conf_of_context, context_conf, session_options
from backfill.runtime.spark_versions import ClassicDataFrame, MergeIntoWriter
from backfill.runtime.switching.batch_writers import merge_into, write, write_to
from backfill.runtime.switching.connect_sessions import forget_server, stay_in_driver
from backfill.runtime.switching.main_program_writes import MainProgram
from backfill.runtime.switching.object_store import open_for_spark
from backfill.runtime.switching.query_handle import SwitchedQueryManager
from backfill.runtime.switching.source_frames import SourceFrames
from backfill.runtime.switching.sql_statements import watch_statements
from backfill.runtime.switching.static_tables import StaticTables
from backfill.runtime.switching.stream_reader import SwitchedBatchReader, SwitchedReader, Tables
from backfill.runtime.switching.stream_writer import SwitchedWriter
from backfill.runtime.switching.tables_in_sql import reading_views

MakeWriter = Callable[[DataFrame, Run, Callable[[DataFrame], None]], SwitchedWriter]


def install(
    run: Run, context_started: Callable[[], None], writer: MakeWriter = SwitchedWriter
) -> None:
    """Switches this process to a backfill. Call it once, before the application's program starts.

    ``context_started`` is called after each start of a SparkContext, which replaces signal
    handlers. ``writer`` is what ``writeStream`` gives.
    """
    listeners = ListenedSessions(lambda: ProgressListener(run.tracker.commit))
    frames, static = SourceFrames(run.settings), StaticTables(run)

    install_with(
        run,
        context_started,
        read_stream=lambda spark: SwitchedReader(spark, run, frames),
        tables=static,
        write_stream=lambda frame: writer(frame, run, listeners.listen),
        program=MainProgram(run, static.names),
    )
    _replace(SparkSession, "sql", static.in_sql(SparkSession.sql))


def install_with(
    run: ProgramRun,
    context_started: Callable[[], None],
    *,
    read_stream: Callable[[SparkSession], DataStreamReader],
    tables: Tables,
    write_stream: Callable[[DataFrame], DataStreamWriter],
    program: MainProgram,
) -> None:
    """The same with other readers and writers."""

    def read(spark: SparkSession) -> DataFrameReader:
        return SwitchedBatchReader(spark, run, tables)

    def into(frame: DataFrame, table: str) -> DataFrameWriterV2:
        return write_to(frame, table, program)

    def merge(frame: DataFrame, table: str, condition: Column) -> MergeIntoWriter:
        return merge_into(frame, table, condition, program)

    def table(spark: SparkSession, tableName: str) -> DataFrame:  # noqa: N803 - Spark's interface
        return read(spark).table(tableName)

    def streams(spark: SparkSession) -> SwitchedQueryManager:
        return SwitchedQueryManager(spark._jsparkSession.streams(), run)

    _replace(SparkSession, "readStream", property(read_stream))
    _replace(SparkSession, "read", property(read))
    _replace(SparkSession, "table", table)
    _replace(SparkSession, "streams", property(streams))
    _replace(ClassicDataFrame, "writeStream", property(write_stream))
    _replace(ClassicDataFrame, "write", property(lambda frame: write(frame, program)))
    _replace(ClassicDataFrame, "writeTo", into)
    if hasattr(ClassicDataFrame, "mergeInto"):
        _replace(ClassicDataFrame, "mergeInto", merge)
    stay_in_driver(run)
    watch_statements(program)
    _replace(SparkSession, "sql", reading_views(SparkSession.sql, tables))
    _replace(SparkContext, "__init__", _starting(SparkContext.__init__, run, context_started))
    _replace(SparkContext, "stop", _stopping(SparkContext.stop, run))
    _replace(SparkSession, "__init__", _with_options(SparkSession.__init__, run))
    _replace(SparkSession.Builder, "getOrCreate", _again(SparkSession.Builder.getOrCreate, run))


def _replace(owner: type, name: str, value: Any) -> None:
    setattr(owner, name, value)


def _starting(
    original: Callable[..., None], run: ProgramRun, context_started: Callable[[], None]
) -> Callable[..., None]:
    signature = inspect.signature(original)

    def start(self: SparkContext, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs)
        conf = context_conf(given.arguments.get("conf"), run.settings)
        if "spark.master" in run.settings.spark_conf:
            given.arguments.pop("master", None)
        SparkContext._ensure_initialized(gateway=early_gateway(conf), conf=conf)
        given.arguments["conf"] = conf_of_context(conf, run.settings)
        original(*given.args, **given.kwargs)
        open_for_spark(self, run.settings.checkpoint_workspace)
        context_started()

    return start


def _with_options(original: Callable[..., None], run: ProgramRun) -> Callable[..., None]:
    signature = inspect.signature(original)

    def start(self: SparkSession, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs)
        if options := given.arguments.get("options"):
            given.arguments["options"] = session_options(options, run.settings)
        original(*given.args, **given.kwargs)

    return start


def _again(
    original: Callable[..., SparkSession], run: ProgramRun
) -> Callable[[SparkSession.Builder], SparkSession]:
    def get_or_create(self: SparkSession.Builder) -> SparkSession:
        """Also where there is a session, which gets the options of this builder."""
        forget_server(self)
        if SparkContext._active_spark_context is not None:
            self._options = session_options(self._options, run.settings)
        return original(self)

    return get_or_create


def _stopping(
    original: Callable[[SparkContext], None], run: ProgramRun
) -> Callable[[SparkContext], None]:
    def stop(self: SparkContext) -> None:
        """Waits for the run if the application ends early;
        ends the run if the application has failed.
        """
        error = sys.exc_info()[1]
        if run.began and isinstance(error, Exception):
            run.end(failed(f"{type(error).__name__}: {error}", error))
        elif run.began:
            run.application_waits()
            run.over.wait()
        original(self)

    return stop
