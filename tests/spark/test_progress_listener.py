"""What is told of the batches of a query."""

import pytest
from py4j.java_gateway import JVMView
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill.runtime.queries.progress_listener import ListenedSessions, ProgressListener
from backfill.runtime.queries.tracker import ReportedBatch
from backfill.runtime.source.source_frame import observed_name
from waiting import eventually


def test_it_is_told_without_a_search_of_all_jars(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    search = JVMView.__getattr__

    def searching(view: JVMView, name: str) -> object:
        searched.append(name)
        return search(view, name)

    told: list[ReportedBatch] = []
    rate = spark.newSession().readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    metrics = (F.count(F.lit(1)).alias("rows"), F.lit(7).alias("max_us"))
    frame = rate.observe(observed_name("events"), *metrics)
    ListenedSessions(lambda: ProgressListener(told.append)).listen(frame)
    monkeypatch.setattr(JVMView, "__getattr__", searching)
    query = frame.writeStream.queryName("counted").format("noop").start()
    eventually(lambda: len(told) > 3, "batches")
    query.stop()

    assert all(each.rows == {"events": 5} for each in told)
    assert all(each.newest_us == 7 for each in told)
    assert [name for name in searched if "." not in name] == []
