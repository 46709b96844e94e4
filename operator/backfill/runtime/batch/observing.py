"""Metrics of the rows that pass a node of a span's plan, known once the span has run. They belong
to the job that computed the rows, so that two spans at once, and two tries of a span, have their
own.
"""

from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

from backfill.runtime.queries.logical_plan import analyzed


def frame_of(spark: SparkSession, plan: JavaObject) -> DataFrame:
    """The rows of a batch plan."""
    jvm = spark._jvm
    assert jvm is not None  # in classic PySpark
    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)
    return DataFrame(rows, spark)


def column_of(spark: SparkSession, expression: JavaObject) -> Column:
    """A column of a plan by its identity, whatever else has its name."""
    jvm = spark._jvm
    assert jvm is not None  # in classic PySpark
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def observing(spark: SparkSession, plan: JavaObject, name: str, *metrics: Column) -> JavaObject:
    """A batch plan that hands on its rows and observes aggregates of them.

    Nothing is pushed through it from above, so that the rows are those of the plan itself.

    Args:
        name: of the metrics, of which no other node of the span's plan has the same.
        metrics: aggregates with an alias each.
    """
    return analyzed(frame_of(spark, plan).observe(name, *metrics))


def observed(frame: DataFrame) -> dict[str, dict[str, Any]]:
    """What a DataFrame has observed when it was collected, by the names of the metrics and their
    aliases. Where Spark found that there are no rows, nothing was observed.
    """
    jvm = frame.sparkSession._jvm
    assert jvm is not None  # in classic PySpark
    found = jvm.scala.jdk.javaapi.CollectionConverters.asJava(
        frame._jdf.queryExecution().observedMetrics()
    )
    return {
        str(name): {
            str(alias): row.get(place) for place, alias in enumerate(row.schema().fieldNames())
        }
        for name, row in found.items()
    }
