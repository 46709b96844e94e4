"""Which queries give a row more than once in output mode update: only these need keys."""

import pytest
from captured_streams import streams
from pyspark.sql import SparkSession

from backfill.runtime.batch.batch_or_stream import changes_rows

CHANGE = {
    "select k, count(*) from events group by k",
    "select distinct k from events",
    "select k from events union select k from events",
    "select k from (select distinct k from events) where k > 1",
}
STAY = {
    "select k from events where k > 1",
    "select k from events union all select k from events",
    "select a.k from events a join events b on a.k = b.k",
    "select e.k from events e join (select distinct k from fixed) f on e.k = f.k",
}


@pytest.mark.parametrize("query", sorted(CHANGE | STAY))
def test_queries_that_give_a_row_again_when_it_changes_are_known(
    spark: SparkSession, query: str
) -> None:
    streams(spark, {"events": "k int"})("events").createOrReplaceTempView("events")
    spark.range(3).withColumnRenamed("id", "k").createOrReplaceTempView("fixed")
    assert changes_rows(spark.sql(query)) == (query in CHANGE)


def test_rows_without_duplicates_stay(spark: SparkSession) -> None:
    events = streams(spark, {"events": "k int, t timestamp"})("events").withWatermark("t", "1 hour")
    assert not changes_rows(events.dropDuplicates(["k"]))
    assert not changes_rows(events.dropDuplicatesWithinWatermark(["k"]))
