"""A batch in which Spark ends is not committed, whatever its function makes of it."""

import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from backfill.api.errors import RunFailed
from backfill.planning.workspace import Workspace
from backfill.runtime.switching.batch_function import BatchFunction


def gone() -> bool:
    raise Py4JNetworkError("Answer from Java side is empty")


def function_in(
    run_over: threading.Event, monkeypatch: pytest.MonkeyPatch, checkpoints: Path
) -> Any:
    """A function that catches all errors, and which batches were committed."""
    settings = SimpleNamespace(outputs=(), checkpoint_workspace=Workspace(str(checkpoints)))
    run: Any = SimpleNamespace(over=run_over, tracker=SimpleNamespace(before=()), settings=settings)
    gate: Any = SimpleNamespace(open=lambda _spark, _step: nullcontext())
    function = BatchFunction(lambda frame, number: None, "copies", "copies", run, gate)
    committed: list[int] = []
    monkeypatch.setattr(function, "_commit", lambda number, files: committed.append(number))
    return function, committed


def frame_of(context: Any) -> Any:
    return SimpleNamespace(sparkSession=SimpleNamespace(_jsparkSession=None, sparkContext=context))


def context(is_stopped: Any) -> Any:
    return SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=is_stopped)))


@pytest.mark.parametrize(
    "ended", [context(lambda: True), context(gone), SimpleNamespace(_jsc=None)]
)
def test_a_batch_in_which_spark_ends_is_not_committed(
    ended: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    function, committed = function_in(threading.Event(), monkeypatch, tmp_path)
    with pytest.raises(RunFailed, match="Spark has ended while the query copies wrote batch 3"):
        function(frame_of(ended), 3)
    assert committed == []


def test_a_batch_in_which_the_run_ends_is_not_committed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    over = threading.Event()
    function, committed = function_in(over, monkeypatch, tmp_path)
    at_work = frame_of(context(lambda: False))
    function(at_work, 3)
    over.set()
    with pytest.raises(RunFailed):
        function(at_work, 4)
    assert committed == [3]
