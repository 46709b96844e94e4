"""A Spark in which plans cannot be put together as batch jobs need it is noticed before a query
depends on it.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from captured_streams import streams
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.errors import UnsupportedProgram
from backfill.runtime import catalyst
from backfill.runtime.batch import rebind_plan, spark_compatibility, straight_json
from backfill.runtime.batch.batch_or_stream import Choice, choose
from backfill.runtime.batch.spark_compatibility import unusable

GONE = "'JavaPackage' object is not callable"


@pytest.fixture
def source(spark: SparkSession) -> Iterator[DataFrame]:
    yield streams(spark, {"events": "k int, t timestamp"})("events")
    spark_compatibility._tried.cache_clear()


def break_nodes(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(catalyst.Catalyst, "project", gone)
    return GONE


def leave_streams(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(
        spark_compatibility,
        "rebind",
        lambda plan, spark, *_a, **_k: rebind_plan.frame_of(spark, plan),
    )
    return "a plan over other rows still streams"


def observe_nothing(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(spark_compatibility, "observing", lambda _spark, plan, *_metrics: plan)
    return "rows that pass a plan are not observed"


def lose_rows(monkeypatch: pytest.MonkeyPatch) -> str:
    whole = rebind_plan.rebind
    monkeypatch.setattr(spark_compatibility, "rebind", lambda *a, **k: whole(*a, **k).limit(1))
    return "a plan over other rows gives [4], and not [4, 6]"


def test_this_spark_can_be_used(spark: SparkSession, source: DataFrame) -> None:
    jobs = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("self-test", "")
    assert unusable(spark) is None
    assert jobs.getJobIdsForGroup("self-test") == [], "it needs no executors"


def forget_sizes(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(spark_compatibility, "sized", lambda frame, _size: frame.limit(0))
    return "rows of 1099511627776 bytes are taken for 1 bytes"


def gone(*_given: Any) -> None:
    raise TypeError(GONE)


def break_sessions(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(catalyst.Catalyst, "aggregate_with", gone)
    return GONE


def break_rules(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(spark_compatibility, "pruned", gone)
    return GONE


def change_values(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(
        straight_json._Straight,
        "_field",
        lambda s, _v, field, _z: s._catalyst.null(field.dataType()),
    )
    return "a plan over other rows gives [None, None, None], and not [1, 2, 3]"


def test_records_keep_their_text_where_it_cannot_be_left_out(
    spark: SparkSession, source: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_compatibility._tried.cache_clear()
    monkeypatch.setattr(catalyst.Catalyst, "or_null", gone)
    assert unusable(spark) is None


@pytest.mark.parametrize(
    "broken",
    [
        break_nodes,
        break_rules,
        break_sessions,
        change_values,
        forget_sizes,
        leave_streams,
        lose_rows,
        observe_nothing,
    ],
)
def test_what_does_not_work_is_named_and_the_query_is_a_stream_if_it_may_be(
    spark: SparkSession, source: DataFrame, monkeypatch: pytest.MonkeyPatch, broken: Any
) -> None:
    spark_compatibility._tried.cache_clear()
    why = f"batch jobs do not work with Spark {spark.version}: {broken(monkeypatch)}"
    query = source.withWatermark("t", "1 minute").groupBy(F.window("t", "1 hour")).count()
    target: Any = SimpleNamespace(query="q", staged=None, output=SimpleNamespace())
    header: Any = SimpleNamespace(inputs=SimpleNamespace(policy=None, sources=()))
    assert choose("Auto", query, target, header, streamed_steps=0) == Choice(None, why)
    with pytest.raises(
        UnsupportedProgram, match='"Batch" is not possible for the query q'
    ) as refused:
        choose("Batch", query, target, header, streamed_steps=0)
    assert why in str(refused.value)
