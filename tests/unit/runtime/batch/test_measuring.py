"""The arrivals at several watermarks are measured together."""

import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from backfill.runtime.batch import measure_arrivals
from backfill.runtime.batch.measure_arrivals import measure
from waiting import PATIENCE_SECONDS

SPARK = Mock(spec=SparkSession)
NOTHING: Any = None


@pytest.fixture(autouse=True)
def three_watermarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)  # other tests of this process have a Spark
    nodes = [SimpleNamespace(number=number) for number in range(3)]
    monkeypatch.setattr(measure_arrivals, "pruned", lambda _plan, _spark: None)
    found = [(node, True) for node in nodes]
    monkeypatch.setattr(measure_arrivals, "_watermarks", lambda _plan, complete: found)
    monkeypatch.setattr(measure_arrivals, "without_copies", lambda nodes, _spark: nodes)


def test_each_is_measured_and_in_the_order_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    others = threading.Event()

    def at(node: Any, *_: object) -> int:
        if node.number == 0:
            assert others.wait(PATIENCE_SECONDS), "the second and the third were not begun"
        if node.number == 2:
            others.set()
        return int(node.number)

    monkeypatch.setattr(measure_arrivals, "_at_watermark", at)
    found: Any = measure(NOTHING, SPARK, NOTHING, NOTHING)
    assert found == [0, 1, 2]


def test_nothing_waits_for_those_at_work_when_one_fails_and_no_other_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[int] = []
    threads: list[threading.Thread] = []
    second, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def at(node: Any, *_: object) -> int:
        begun.append(node.number)
        threads.append(threading.current_thread())
        if node.number == 0:
            assert second.wait(PATIENCE_SECONDS)
            raise RuntimeError("a file is missing")
        second.set()
        go_on.wait(PATIENCE_SECONDS)
        ended.set()
        return int(node.number)

    monkeypatch.setattr(measure_arrivals, "_at_watermark", at)
    with pytest.raises(RuntimeError, match="a file is missing"):
        measure(NOTHING, SPARK, NOTHING, NOTHING)
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(PATIENCE_SECONDS)
    assert sorted(begun) == [0, 1]
    assert all(thread.daemon for thread in threads), "the end of a driver would wait for them"


def test_a_thread_that_cannot_begin_is_an_error_and_nothing_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_properties(_spark: object, _work: object) -> Any:
        def inherited(*_: object) -> None:
            raise RuntimeError("the context is stopped")

        return inherited

    monkeypatch.setattr(measure_arrivals, "as_thread", no_properties)
    with pytest.raises(RuntimeError, match="the context is stopped"):
        measure(NOTHING, SPARK, NOTHING, NOTHING)
