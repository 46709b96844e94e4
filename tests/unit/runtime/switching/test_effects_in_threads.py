"""Threads that a function of ``foreachBatch`` starts belong to its batch, and are otherwise as in
production.
"""

import decimal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from backfill.runtime.queries.application_threads import application_works
from backfill.runtime.switching import side_effects
from backfill.runtime.switching.batch_function import batch_in_progress, within
from backfill.runtime.switching.late_writes import BatchThreads
from waiting import PATIENCE_SECONDS

FIRST, SECOND = (SimpleNamespace(parts=BatchThreads(), part=nullcontext) for _ in range(2))
CONNECT = ("socket.connect", (None, ("db", 5432)))


class Batch:
    """One that allows everything or nothing."""

    def __init__(self, *, allows: bool):
        self._allows = allows
        self.parts = BatchThreads()
        self.refused: list[str] = []

    def part(self) -> AbstractContextManager[None]:
        return nullcontext()

    def allows(self, effect: str) -> bool:
        return self._allows

    def refuse_effect(self, effect: str, what: str) -> Exception:
        self.refused.append(what)
        return PermissionError(what)


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", ThreadPoolExecutor.submit)
    side_effects._inherit_the_batch()
    yield


def in_a_thread() -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(batch_in_progress()))
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_belongs_to_the_batch_in_which_it_is_started() -> None:
    with within(FIRST):
        assert in_a_thread() is FIRST
    assert in_a_thread() is None


def test_a_task_belongs_to_the_batch_in_which_it_is_submitted_whoever_began_the_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        for batch in (FIRST, SECOND, None):
            with within(batch):
                assert list(pool.map(lambda _: batch_in_progress(), [0])) == [batch]


def test_a_thread_of_a_pool_keeps_the_settings_that_its_initializer_has_made() -> None:
    def precise() -> None:
        decimal.getcontext().prec = 3

    with within(FIRST), ThreadPoolExecutor(1, initializer=precise) as pool:
        assert pool.submit(lambda: decimal.getcontext().prec).result() == 3


def test_what_one_batch_may_not_do_another_one_may_at_the_same_time() -> None:
    free, bound = Batch(allows=True), Batch(allows=False)
    both = threading.Barrier(2, timeout=60)

    def connect(batch: Any) -> str:
        with within(batch):
            both.wait()
            try:
                side_effects._audit(*CONNECT)
            except PermissionError as refused:
                return str(refused)
            finally:
                both.wait()
        return "connected"

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(connect, [free, bound])) == ["connected", "connects to db:5432"]
    assert (free.refused, bound.refused) == ([], ["connects to db:5432"])
    side_effects._audit(*CONNECT)  # outside of functions


def test_a_task_of_the_application_is_still_known_to_be_at_work() -> None:
    others, inside, over = set(sys._current_frames()), threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        assert over.wait(PATIENCE_SECONDS)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work)
        assert inside.wait(PATIENCE_SECONDS)
        try:
            assert application_works(others)
        finally:
            over.set()
