"""Requests go at a bounded rate, however many threads send them."""

from backfill.kube.throttle import Throttle


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_burst_goes_at_once_and_what_follows_at_the_rate() -> None:
    time = FakeTime()
    throttle = Throttle(10, 5, monotonic=lambda: time.now, sleep=time.sleep)
    sent = []
    for _ in range(25):
        throttle.wait()
        sent.append(time.now)
    assert sent[:5] == [0.0] * 5
    assert abs(sent[-1] - 2.0) < 1e-6


def test_a_quiet_time_makes_room_for_one_burst_and_not_for_more() -> None:
    time = FakeTime()
    throttle = Throttle(10, 5, monotonic=lambda: time.now, sleep=time.sleep)
    time.now = 1000.0
    for _ in range(7):
        throttle.wait()
    assert abs(time.now - 1000.2) < 1e-6


def test_threads_that_come_at_the_same_moment_wait_for_a_token_each() -> None:
    slept: list[float] = []
    throttle = Throttle(10, 1, monotonic=lambda: 0.0, sleep=slept.append)
    for _ in range(4):
        throttle.wait()
    assert [round(seconds, 6) for seconds in slept] == [0.1, 0.2, 0.3]
