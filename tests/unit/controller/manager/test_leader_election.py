"""Who leads, with a Lease in memory and clocks that the tests turn."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest

from backfill.api.errors import ConflictError
from backfill.controller.manager.leader_election import Elector, LeaseTimes


class FakeClock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


class FakeLease:
    """A Lease as the API server keeps it: replaced only by who has read its newest version."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.reachable = True
        self.between: Any = None

    def get(self) -> dict[str, Any] | None:
        self._request()
        return copy.deepcopy(self.lease)

    def create(self, spec: dict[str, Any]) -> None:
        self._request()
        if self.lease is not None:
            raise ConflictError
        self.lease = {"metadata": {"resourceVersion": "1"}, "spec": spec}

    def replace(self, lease: dict[str, Any], spec: dict[str, Any]) -> None:
        self._request()
        assert self.lease is not None
        if self.between is not None:
            act, self.between = self.between, None
            act()
        if lease["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ConflictError
        version = int(lease["metadata"]["resourceVersion"]) + 1
        self.lease = {"metadata": {"resourceVersion": str(version)}, "spec": spec}

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        return self.lease["spec"]

    def _request(self) -> None:
        if not self.reachable:
            raise ConnectionError("refused")


@pytest.fixture
def lease() -> FakeLease:
    return FakeLease()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def candidate(lease: FakeLease, name: str, clock: FakeClock) -> Elector:
    return Elector(lease, name, monotonic=clock)


def test_the_first_candidate_leads_and_the_second_does_not(
    lease: FakeLease, clock: FakeClock
) -> None:
    one, two = candidate(lease, "one", clock), candidate(lease, "two", clock)
    assert one.attempt()
    assert not two.attempt()
    assert (one.leads, two.leads) == (True, False)
    assert lease.spec["holderIdentity"] == "one"


def test_a_leader_that_renews_is_never_overtaken(lease: FakeLease, clock: FakeClock) -> None:
    one, two = candidate(lease, "one", clock), candidate(lease, "two", clock)
    for _ in range(30):
        assert one.attempt()
        assert not two.attempt()
        clock.now += 2
    assert lease.spec["leaseTransitions"] == 1


def test_a_lease_that_nobody_renews_is_taken_after_its_duration_by_the_watchers_own_clock(
    lease: FakeLease, clock: FakeClock
) -> None:
    elsewhere = FakeClock()
    elsewhere.now = 1e9
    assert candidate(lease, "one", elsewhere).attempt()
    two = candidate(lease, "two", clock)
    assert not two.attempt()
    clock.now += 14.9
    assert not two.attempt()
    clock.now += 0.1
    assert two.attempt()
    assert (lease.spec["holderIdentity"], lease.spec["leaseTransitions"]) == ("two", 2)


def test_a_record_from_the_past_or_the_future_is_no_reason_to_take_over(
    lease: FakeLease, clock: FakeClock
) -> None:
    assert candidate(lease, "one", clock).attempt()
    for wrong in ("1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"):
        lease.spec["renewTime"] = wrong
        assert not candidate(lease, "two", clock).attempt()


def test_a_leader_that_can_not_renew_stops_before_anybody_else_may_begin(
    lease: FakeLease, clock: FakeClock
) -> None:
    one, two = candidate(lease, "one", clock), candidate(lease, "two", clock)
    assert one.attempt()
    assert not two.attempt()
    lease.reachable = False
    assert not one.attempt()
    clock.now += 9.9
    assert one.leads
    clock.now += 0.1
    assert not one.leads
    lease.reachable = True
    assert not two.attempt()


def test_a_leader_that_has_lapsed_never_leads_again_because_it_may_have_dropped_what_was_due(
    lease: FakeLease, clock: FakeClock
) -> None:
    one, two = candidate(lease, "one", clock), candidate(lease, "two", clock)
    assert one.attempt()
    clock.now += 10
    assert not one.attempt()
    assert not one.leads
    assert not two.attempt()
    clock.now += 15
    assert two.attempt()


def test_a_leader_that_lapses_while_it_renews_does_not_lead_again(
    lease: FakeLease, clock: FakeClock
) -> None:
    def slow() -> None:
        clock.now += 5

    one = candidate(lease, "one", clock)
    assert one.attempt()
    clock.now += 9
    lease.between = slow
    assert not one.attempt()
    assert not one.leads


def test_a_leader_whose_lease_was_taken_stops_at_once(lease: FakeLease, clock: FakeClock) -> None:
    one, two = candidate(lease, "one", clock), candidate(lease, "two", FakeClock())
    assert one.attempt()
    lease.spec["holderIdentity"] = ""
    assert two.attempt()
    assert not one.attempt()
    assert not one.leads


def test_an_answer_that_got_lost_does_not_end_the_leadership(
    lease: FakeLease, clock: FakeClock
) -> None:
    one = candidate(lease, "one", clock)
    assert one.attempt()
    lease.between = lambda: (
        lease.spec.update(renewTime="later") or lease.lease["metadata"].update(resourceVersion="7")
    )
    assert not one.attempt()
    assert one.leads
    assert one.attempt()


def test_of_two_that_see_the_same_abandoned_lease_one_gets_it(
    lease: FakeLease, clock: FakeClock
) -> None:
    one, two, three = (candidate(lease, name, clock) for name in ("one", "two", "three"))
    assert one.attempt()
    assert not two.attempt()
    assert not three.attempt()
    clock.now += 15
    lease.between = three.attempt
    assert not two.attempt()
    assert (three.leads, two.leads) == (True, False)


def test_a_released_lease_is_taken_at_the_next_attempt(lease: FakeLease, clock: FakeClock) -> None:
    one, two = candidate(lease, "one", clock), candidate(lease, "two", clock)
    assert one.attempt()
    assert not two.attempt()
    one.release()
    assert not one.leads
    assert two.attempt()


def test_who_does_not_lead_releases_nothing(lease: FakeLease, clock: FakeClock) -> None:
    one, two = candidate(lease, "one", clock), candidate(lease, "two", clock)
    assert one.attempt()
    assert not two.attempt()
    two.release()
    assert lease.spec["holderIdentity"] == "one"


def test_the_same_identity_goes_on_with_its_lease_after_a_restart(
    lease: FakeLease, clock: FakeClock
) -> None:
    assert candidate(lease, "one", clock).attempt()
    assert candidate(lease, "one", clock).attempt()
    assert lease.spec["leaseTransitions"] == 1


class FakeStop(threading.Event):
    """An end that nobody asks for; waiting for it only turns the clock."""

    def __init__(self, clock: FakeClock, waited: Callable[[], None]) -> None:
        super().__init__()
        self._clock, self._waited = clock, waited

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.now += timeout or 0.0
        self._waited()
        return False


def test_keeping_goes_on_after_a_renewal_that_failed_and_ends_when_the_lease_is_lost(
    lease: FakeLease, clock: FakeClock
) -> None:
    times, one = LeaseTimes(), candidate(lease, "one", clock)
    began, last_renewal = clock.now, clock.now + 4 * times.retry

    def waited() -> None:
        lease.reachable = clock.now <= last_renewal and clock.now != began + times.retry

    assert one.attempt()
    assert not one.keep(FakeStop(clock, waited))
    assert clock.now == last_renewal + times.renew_deadline


def test_keeping_ends_when_asked_to(lease: FakeLease) -> None:
    one, stop = Elector(lease, "one"), threading.Event()
    assert one.acquire(stop)
    stop.set()
    assert one.keep(stop)


def test_whoever_waits_for_the_lease_looks_again_when_it_is_about_to_be_abandoned(
    lease: FakeLease, clock: FakeClock
) -> None:
    assert candidate(lease, "one", clock).attempt()
    began, looks = clock.now, 0

    def waited() -> None:
        nonlocal looks
        looks += 1

    assert candidate(lease, "two", clock).acquire(FakeStop(clock, waited))
    assert clock.now == began + LeaseTimes().duration
    assert looks == 8, "every two seconds, and then sooner"


def test_waiting_for_the_lease_ends_when_asked_to(lease: FakeLease) -> None:
    assert Elector(lease, "one").attempt()
    stop = threading.Event()
    threading.Timer(0.05, stop.set).start()
    assert not Elector(lease, "two").acquire(stop)
