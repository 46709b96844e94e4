"""Streaming DataFrames as the product's sources give them, without a plan: they can be analyzed,
and run over batch rows, but not started.
"""

from collections.abc import Callable, Mapping

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column
from pyspark.sql.datasource import DataSource

from backfill.runtime.queries.logical_plan import analyzed, elements, id_of, kind_of
from backfill.runtime.source.data_source import FORMAT

Read = Callable[[str], DataFrame]
"""Gives the streaming frame of a source."""


class _NeverStarted(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT


def streams(spark: SparkSession, schemas: Mapping[str, str]) -> Read:
    """Reads sources with these columns."""
    spark.dataSource.register(_NeverStarted)

    def read(source: str) -> DataFrame:
        reader = spark.readStream.format(FORMAT).option("source", source)
        return reader.schema(schemas[source]).load()

    return read


def over_batch(frame: DataFrame, rows: Callable[[str], DataFrame]) -> DataFrame:
    """The same query, over batch rows of its sources."""
    spark = frame.sparkSession
    return _of_plan(spark, _bound(spark, analyzed(frame), rows))


def _bound(spark: SparkSession, node: JavaObject, rows: Callable[[str], DataFrame]) -> JavaObject:
    kind, children = kind_of(node), elements(node.children())
    if kind == "StreamingRelationV2":
        return _relation(spark, node, rows)
    if not children or not node.isStreaming():
        return node
    bound = [_bound(spark, child, rows) for child in children]
    if kind in {"CollectMetrics", "EventTimeWatermark"}:
        return bound[0]
    if kind == "DeduplicateWithinWatermark":
        return _not_seen_within_delay(spark, node, bound[0])
    return node.withNewChildren(spark._jvm.PythonUtils.toSeq(bound))


def _relation(
    spark: SparkSession, node: JavaObject, rows: Callable[[str], DataFrame]
) -> JavaObject:
    jvm = spark._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    nothing, none = jvm.PythonUtils.toSeq([]), jvm.scala.Option.apply(None)
    plan = analyzed(rows(str(node.extraOptions().get("source"))))
    given = {str(each.name()): each for each in elements(plan.output())}
    columns = [
        catalyst.expressions.Alias(
            given[each.name()], each.name(), each.exprId(), nothing, none, nothing
        )
        for each in elements(node.output())
    ]
    return catalyst.plans.logical.Project(jvm.PythonUtils.toSeq(columns), plan)


def _not_seen_within_delay(spark: SparkSession, node: JavaObject, child: JavaObject) -> JavaObject:
    """Rows whose key was not there at most the watermark's delay before, by event time."""
    columns = elements(node.child().output())
    (time,) = (each for each in columns if each.metadata().contains("spark.watermarkDelayMs"))
    delay_us = time.metadata().getLong("spark.watermarkDelayMs") * 1_000
    keys = {id_of(each) for each in elements(node.keys())}
    of = spark._jvm.org.apache.spark.sql.classic.ExpressionUtils
    by_key = Window.partitionBy(
        *(Column(of.column(each)) for each in columns if id_of(each) in keys)
    )
    at = F.unix_micros(Column(of.column(time)))
    frame = _of_plan(spark, child).withColumn("_before", F.lag(at).over(by_key.orderBy(at)))
    kept = frame.where(F.col("_before").isNull() | (at - F.col("_before") > delay_us))
    return analyzed(kept.drop("_before"))


def _of_plan(spark: SparkSession, plan: JavaObject) -> DataFrame:
    rows = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)
    return DataFrame(rows, spark)
