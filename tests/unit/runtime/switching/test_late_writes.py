"""What threads of a function write after it has returned is neither lost nor taken for a result."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backfill.api.errors import ResultLost
from backfill.planning.workspace import Workspace
from backfill.runtime.queries.run_state import Run
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.switching import batch_function, late_writes, side_effects
from backfill.runtime.switching.batch_function import BatchFunction, WriteTarget
from waiting import PATIENCE_SECONDS, eventually

OPEN: Any = SimpleNamespace(
    open=lambda _spark, _step: nullcontext(), announced=lambda _spark, _step: nullcontext()
)
COPIES = WriteTarget("copies", "writeTo.append")
FRAME: Any = SimpleNamespace(sparkSession=SimpleNamespace(_jsparkSession="the query's"))


class Branch:
    """One that takes rows when it may."""

    output = SimpleNamespace(name="copies")

    def __init__(self) -> None:
        self.begun, self.may = threading.Event(), threading.Event()
        self.may.set()

    def write(self, *_: Any) -> list[str]:
        self.begun.set()
        assert self.may.wait(PATIENCE_SECONDS)
        return ["rows"]


class Query:
    """A query with a function, and what was committed of each batch."""

    def __init__(self, checkpoints: Path, monkeypatch: pytest.MonkeyPatch):
        given: dict[str, Any] = {"checkpoints": str(checkpoints), "outputs": ()}
        header = SimpleNamespace(inputs=SimpleNamespace(static_tables=()))
        tracker: Any = SimpleNamespace(before=(), header=header)
        self.run = Run(RuntimeSettings.model_construct(**given), tracker)
        self.branch = Branch()
        self.does: Callable[[int], None] = lambda number: None
        self.function = BatchFunction(
            lambda frame, number: self.does(number), "each", "each", self.run, OPEN
        )
        self.committed: dict[int, int] = {}
        monkeypatch.setattr(self.function, "branch", lambda destination: self.branch)
        monkeypatch.setattr(self.function, "_commit", self._commit)

    def _commit(self, number: int, files: dict[str, list[str]]) -> None:
        self.committed[number] = sum(map(len, files.values()))

    def write(self) -> None:
        batch = batch_function.batch_in_progress()
        assert batch is not None
        batch.write(FRAME, COPIES)


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Query]:
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", ThreadPoolExecutor.submit)
    monkeypatch.setattr(batch_function, "_has_ended", lambda frame: False)
    monkeypatch.setattr(batch_function, "_latest", {})
    monkeypatch.setattr(batch_function, "PATIENCE_SECONDS", 0.2)
    side_effects._inherit_the_batch()
    yield Query(tmp_path, monkeypatch)


def test_threads_and_tasks_that_the_function_does_not_wait_for_are_waited_for(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query.function, "_patience_seconds", PATIENCE_SECONDS)
    goes_on, pool = threading.Event(), ThreadPoolExecutor(1)

    def later() -> None:
        assert goes_on.wait(PATIENCE_SECONDS)
        query.write()

    def each(number: int) -> None:
        threading.Thread(target=later).start()
        pool.submit(later)
        threading.Timer(0.05, goes_on.set).start()

    query.does = each
    query.function(FRAME, 0)
    assert query.committed == {0: 2}
    pool.shutdown()


def test_a_batch_is_committed_when_what_is_being_written_is_there(query: Query) -> None:
    query.branch.may.clear()
    ends = threading.Timer(5 * batch_function.PATIENCE_SECONDS, query.branch.may.set)

    def each(number: int) -> None:
        threading.Thread(target=query.write).start()
        assert query.branch.begun.wait(PATIENCE_SECONDS)
        ends.start()

    query.does = each
    query.function(FRAME, 0)
    assert query.committed == {0: 1}


def test_a_thread_that_never_ends_may_write_as_long_as_it_does_so_often(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_writes, "_LONGEST_SECONDS", 1.0)
    errors = list[Exception]()

    def often() -> None:
        try:
            while True:
                query.write()
        except ResultLost as error:
            errors.append(error)

    query.does = lambda number: threading.Thread(target=often).start()
    query.function(FRAME, 0)
    assert query.committed[0] > 1
    eventually(lambda: len(errors) == 1, lambda: str(errors))


def test_a_write_that_begins_after_the_commit_is_not_forgotten_by_later_attempts(
    query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, errors = threading.Event(), list[Exception]()

    def late() -> None:
        assert goes_on.wait(PATIENCE_SECONDS)
        try:
            query.write()
        except ResultLost as error:
            errors.append(error)

    threads = []

    def each(number: int) -> None:
        threads.append(threading.Thread(target=late))
        threads[-1].start()

    query.does = each
    query.function(FRAME, 7)
    assert query.committed == {7: 0}
    goes_on.set()
    threads[0].join()
    outcome = query.run.outcome
    assert outcome is not None and (outcome.reason, outcome.exit_status) == ("ResultLost", 2)
    assert outcome.message == str(errors[0])
    assert "batch 7 is committed without these rows" in outcome.message
    with pytest.raises(ResultLost, match="delete the Backfill and create it again"):
        Query(tmp_path, monkeypatch)
    Query(tmp_path / "another backfill", monkeypatch)


def test_threads_that_never_end_delay_batches_less_and_less(query: Query) -> None:
    ends = threading.Event()
    query.does = lambda number: threading.Thread(target=ends.wait).start()
    for number in range(4):
        query.function(FRAME, number)
    assert query.function._patience_seconds == 0.2 / 2**4
    ends.set()
    query.does = lambda number: None
    query.function(FRAME, 4)
    assert list(query.committed) == [0, 1, 2, 3, 4]


def test_a_dataframe_of_a_batch_that_is_over_belongs_to_it_in_any_thread(query: Query) -> None:
    class Session(str):
        equals = str.__eq__

    frame: Any = SimpleNamespace(sparkSession=SimpleNamespace(_jsparkSession=Session("a")))
    other: Any = SimpleNamespace(_jsparkSession=Session("b"))
    query.function(frame, 0)
    batch = batch_function.batch_of(frame.sparkSession)
    assert batch is not None and batch_function.batch_of(other) is None
    with pytest.raises(ResultLost):
        batch.write(frame, COPIES)


def test_no_file_says_that_rows_are_lost_where_none_are(query: Query, tmp_path: Path) -> None:
    query.function(FRAME, 0)
    assert Workspace(str(tmp_path)).files() == []
