"""Reads the logs of a checkpoint as Spark does when it starts a query."""

from typing import Any

from pyspark.sql import SparkSession

from backfill.runtime.catalyst import elements


def offsets_in_log(spark: SparkSession, location: str) -> tuple[int, int, list[str]]:
    """The last batch of the offset log, that of the commit log, and the offsets of the sources in
    the former.
    """
    jvm: Any = spark._jvm
    logs = jvm.org.apache.spark.sql.execution.streaming.checkpointing
    offset_log = logs.OffsetSeqLog(spark._jsparkSession, f"{location}/offsets", False)
    commit_log = logs.CommitLog(spark._jsparkSession, f"{location}/commits", False)
    batch = int(offset_log.getLatestBatchId().get())
    offsets = elements(offset_log.get(batch).get().offsets())
    committed = int(commit_log.getLatestBatchId().get())
    return batch, committed, [str(each.get().json()) for each in offsets]
