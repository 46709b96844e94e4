"""Reads the logs of a checkpoint as Spark does when it starts a query."""

from pyspark.sql import SparkSession

from backfill.runtime.catalyst import elements
from backfill.runtime.java_classes import java_classes
from backfill.runtime.spark_versions import checkpoint_logs, open_log


def offsets_in_log(spark: SparkSession, location: str) -> tuple[int, int, list[str]]:
    """The last batch of the offset log, that of the commit log, and the offsets of the sources in
    the former.
    """
    logs = checkpoint_logs(java_classes(spark))
    offset_log = open_log(logs.OffsetSeqLog, spark, f"{location}/offsets")
    commit_log = open_log(logs.CommitLog, spark, f"{location}/commits")
    batch = int(offset_log.getLatestBatchId().get())
    offsets = elements(offset_log.get(batch).get().offsets())
    committed = int(commit_log.getLatestBatchId().get())
    return batch, committed, [str(each.get().json()) for each in offsets]
