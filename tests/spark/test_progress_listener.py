"""What is told of the batches of a query."""

import traceback
from collections.abc import Callable

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import JVMView
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from backfill.runtime.queries.progress_listener import ListenedSessions, ProgressListener
from backfill.runtime.queries.tracker import ReportedBatch
from backfill.runtime.source.source_frame import observed_name
from waiting import eventually


def _counted(
    spark: SparkSession,
    told: list[ReportedBatch],
    watched: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> DataStreamWriter:
    """What starts a query that tells of its batches, of five rows each."""
    rate = spark.newSession().readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    metrics = (F.count(F.lit(1)).alias("rows"), F.lit(7).alias("max_us"))
    frame = watched(rate.observe(observed_name("events"), *metrics))
    ListenedSessions(lambda: ProgressListener(told.append)).listen(frame)
    return frame.writeStream.queryName("counted").format("noop")


def test_it_is_told_without_a_search_of_all_jars(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    search = JVMView.__getattr__

    def searching(view: JVMView, name: str) -> object:
        searched.append(name)
        return search(view, name)

    told: list[ReportedBatch] = []
    counted = _counted(spark, told)
    monkeypatch.setattr(JVMView, "__getattr__", searching)
    query = counted.start()
    eventually(lambda: len(told) > 3, "batches")
    query.stop()

    assert all(each.rows == {"events": 5} for each in told)
    assert all(each.newest_us == 7 for each in told)
    assert [name for name in searched if "." not in name] == []


def test_the_progress_of_a_batch_is_read_by_a_few_calls(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    send = ClientServerConnection.send_command

    def counting(connection: ClientServerConnection, command: str) -> str:
        if "onQueryProgress" in {frame.name for frame in traceback.extract_stack()}:
            calls.append(command)
        return str(send(connection, command))

    told: list[ReportedBatch] = []
    monkeypatch.setattr(ClientServerConnection, "send_command", counting)
    query = _counted(spark, told).start()
    eventually(lambda: len(told) > 3, "batches")
    query.stop()

    assert len(calls) < 10 * len(told), calls


def test_a_batch_of_which_something_is_no_json_is_told_all_the_same(spark: SparkSession) -> None:
    told: list[ReportedBatch] = []
    lasting = F.expr("max(timestamp) - timestamp'2020-01-01'").alias("lasting")
    observed = _counted(spark, told, lambda frame: frame.observe("of the application", lasting))
    query = observed.start()
    eventually(lambda: len(told) > 3, "batches")
    query.stop()

    assert all(each.rows == {"events": 5} for each in told), told
    assert [each.end for each in told] == list(range(1, len(told) + 1))
