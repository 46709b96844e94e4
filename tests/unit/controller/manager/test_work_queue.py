"""Keys in the queue: each at most once, by one thread at a time, and none forgotten."""

import threading
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.controller.manager.workqueue import Agenda, Workers, WorkQueue
from waiting import PATIENCE_SECONDS, eventually


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(clock: FakeClock) -> WorkQueue[str]:
    return WorkQueue(monotonic=clock)


def take(queue: WorkQueue[str]) -> str | None:
    return queue.take(timeout_seconds=0)


def test_a_key_that_is_marked_many_times_is_taken_once(queue: WorkQueue[str]) -> None:
    for _ in range(3):
        queue.mark("a")
    assert (queue.depth, take(queue), take(queue), queue.depth) == (1, "a", None, 0)


def test_keys_are_taken_in_the_order_in_which_they_became_due(
    queue: WorkQueue[str], clock: FakeClock
) -> None:
    queue.mark("late", after_seconds=2)
    clock.now += 1
    queue.mark("now")
    clock.now += 5
    assert [take(queue), take(queue)] == ["now", "late"]


def test_a_key_that_is_marked_during_its_turn_comes_again_and_not_before_the_turn_has_ended(
    queue: WorkQueue[str],
) -> None:
    queue.mark("a")
    assert take(queue) == "a"
    queue.mark("a")
    assert take(queue) is None
    queue.done("a")
    assert take(queue) == "a"


def test_the_earliest_of_several_times_counts(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.mark("a", after_seconds=60)
    queue.mark("a", after_seconds=5)
    queue.mark("a", after_seconds=30)
    clock.now += 5
    assert take(queue) == "a"
    queue.done("a")
    clock.now += 100
    assert take(queue) is None


def test_a_key_that_waits_for_its_time_does_not_count_as_depth(
    queue: WorkQueue[str], clock: FakeClock
) -> None:
    queue.mark("a", after_seconds=60)
    assert queue.depth == 0
    clock.now += 60
    assert queue.depth == 1


def test_the_wait_after_a_failure_doubles_to_a_minute_and_is_forgotten_after_a_success(
    queue: WorkQueue[str], clock: FakeClock
) -> None:
    waits = []
    queue.mark("a")
    for _ in range(14):
        assert take(queue) == "a"
        waits.append(queue.failed("a"))
        assert take(queue) is None
        clock.now += waits[-1]
    assert waits[:3] == [0.1, 0.2, 0.4]
    assert waits[-1] == 60.0
    assert take(queue) == "a"
    queue.done("a")
    queue.mark("a")
    assert take(queue) == "a"
    assert queue.failed("a") == 0.1


def test_a_key_that_failed_is_taken_at_once_when_something_changes(queue: WorkQueue[str]) -> None:
    queue.mark("a")
    assert take(queue) == "a"
    queue.failed("a")
    queue.mark("a")
    assert take(queue) == "a"


def test_how_long_a_key_was_due_is_told(clock: FakeClock) -> None:
    waited: list[float] = []
    queue: WorkQueue[str] = WorkQueue(monotonic=clock, on_taken=waited.append)
    queue.mark("a", after_seconds=10)
    clock.now += 13
    take(queue)
    assert waited == [3.0]


def test_a_thread_that_waits_wakes_for_a_key_and_for_the_end() -> None:
    queue: WorkQueue[str] = WorkQueue()
    taken: list[str | None] = []
    thread = threading.Thread(target=lambda: taken.extend([queue.take(), queue.take()]))
    thread.start()
    queue.mark("a")
    queue.mark("b", after_seconds=0.05)
    thread.join(PATIENCE_SECONDS)
    assert taken == ["a", "b"]
    waiting = threading.Thread(target=lambda: taken.append(queue.take()))
    waiting.start()
    queue.close()
    waiting.join(PATIENCE_SECONDS)
    assert taken[2:] == [None]


def test_no_key_is_worked_on_by_two_threads_and_no_mark_is_forgotten() -> None:
    queue: WorkQueue[int] = WorkQueue()
    running: Counter[int] = Counter()
    marks: Counter[int] = Counter()
    seen: Counter[int] = Counter()
    clashes: list[int] = []
    lock = threading.Lock()

    def turn(key: int) -> None:
        with lock:
            running[key] += 1
            clashes.extend([key] if running[key] > 1 else [])
            seen[key] = marks[key]
        time.sleep(0.0005)
        with lock:
            running[key] -= 1
        queue.done(key)

    workers = Workers(queue, turn, threads=4)
    workers.start()
    for _ in range(50):
        for key in range(5):
            with lock:
                marks[key] += 1
            queue.mark(key)
    eventually(lambda: seen == marks, "a turn after the last mark of every key")
    queue.close()
    assert workers.join(timeout_seconds=PATIENCE_SECONDS)
    assert clashes == []


class Model:
    """The rules of an agenda in their plainest form."""

    def __init__(self) -> None:
        self.due: dict[int, float] = {}
        self.running: set[int] = set()

    def ready(self, now: float) -> set[int]:
        free = {key: at for key, at in self.due.items() if key not in self.running and at <= now}
        return {key for key, at in free.items() if at == min(free.values())}


_ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("mark"), st.integers(0, 3), st.integers(0, 5)),
        st.tuples(st.just("begin"), st.just(0), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.integers(1, 3)),
    ),
    max_size=60,
)


@given(_ACTS)
def test_the_agenda_gives_what_a_plain_list_would_give(acts: list[tuple[str, int, int]]) -> None:
    agenda: Agenda[int] = Agenda()
    model, now = Model(), 0.0
    for act, key, amount in acts:
        if act == "mark":
            agenda.mark(key, now + amount)
            model.due[key] = min(model.due.get(key, now + amount), now + amount)
        elif act == "wait":
            now += amount
        elif act == "end" and key in model.running:
            agenda.end(key)
            model.running.discard(key)
        elif act == "begin":
            taken = agenda.begin(now)
            allowed = model.ready(now)
            assert (taken is None) == (not allowed)
            if taken is not None:
                assert taken[0] in allowed
                assert taken[1] == model.due.pop(taken[0])
                model.running.add(taken[0])
        assert len(agenda) == len(model.due)


Pair = tuple[str, int]


def shared_queue(clock: FakeClock, threads: int = 8, namespaces: int = 2) -> WorkQueue[Pair]:
    return WorkQueue(
        threads=threads, group_of=lambda key: key[0], groups=lambda: namespaces, monotonic=clock
    )


def test_thousands_of_keys_of_one_namespace_do_not_delay_a_key_of_another(clock: FakeClock) -> None:
    queue = shared_queue(clock)
    for number in range(5_000):
        queue.mark(("busy", number))
    clock.now += 1
    queue.mark(("quiet", 0))
    assert queue.take(0) == ("busy", 0), "of equals whoever waits longest"
    assert queue.take(0) == ("quiet", 0)
    queue.done(("quiet", 0))
    assert queue.take(0) == ("busy", 1), "the rest goes on meanwhile"


def test_one_namespace_has_at_most_half_of_the_threads_while_others_have_backfills(
    clock: FakeClock,
) -> None:
    queue = shared_queue(clock)
    for number in range(20):
        queue.mark(("busy", number))
    taken = [queue.take(0) for _ in range(5)]
    assert taken == [("busy", 0), ("busy", 1), ("busy", 2), ("busy", 3), None]
    queue.mark(("quiet", 0))
    assert queue.take(0) == ("quiet", 0), "its turns may be slow: a thread is free at once"
    queue.done(("busy", 2))
    assert queue.take(0) == ("busy", 4)


def test_a_namespace_that_is_alone_has_all_threads(clock: FakeClock) -> None:
    queue = shared_queue(clock, namespaces=1)
    for number in range(8):
        queue.mark(("busy", number))
    assert all(queue.take(0) for _ in range(8))


def test_a_thread_that_waits_for_the_share_of_a_namespace_wakes_when_one_of_its_turns_ends() -> (
    None
):
    queue: WorkQueue[Pair] = WorkQueue(threads=2, group_of=lambda key: key[0], groups=lambda: 2)
    queue.mark(("busy", 0))
    queue.mark(("busy", 1))
    assert queue.take(0) == ("busy", 0)
    taken: list[Pair | None] = []
    waiting = threading.Thread(target=lambda: taken.append(queue.take(10)))
    waiting.start()
    queue.done(("busy", 0))
    waiting.join(PATIENCE_SECONDS)
    assert taken == [("busy", 1)]
