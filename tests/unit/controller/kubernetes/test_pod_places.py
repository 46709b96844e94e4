"""How many pods of jobs there are at the same time, and whose turn is next."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from backfill.api.quantities import format_time
from backfill.controller.kubernetes.cache import Cache, labelled_key
from backfill.controller.kubernetes.job_pod import JOB_LABEL
from backfill.controller.kubernetes.names import BACKFILL_LABEL, Key
from backfill.controller.kubernetes.pod_places import PodPlaces


class Place:
    """Places for the pods of a cache, and who was told that it is worth asking."""

    def __init__(self, most: int) -> None:
        self.cache = Cache(labelled_key)
        self.places = PodPlaces(self.cache, most)
        self.told: list[str] = []
        self._versions = count(1)

    def take(self, name: str) -> bool:
        return self.places.take(key(name), lambda: self.told.append(name))

    def make(self, name: str) -> bool:
        """Makes a pod if it may."""
        if not self.take(name):
            return False
        self.see(name)
        self.places.leave(key(name))
        return True

    def see(self, name: str, phase: str = "Pending", label: str = JOB_LABEL, **more: str) -> dict[str, Any]:
        labels = {BACKFILL_LABEL: name, label: "plan"}
        metadata = {"namespace": "default", "name": name, "uid": name, "labels": labels} | more
        pod = {"metadata": metadata | {"resourceVersion": str(next(self._versions))}, "status": {"phase": phase}}
        self.cache.put(pod)
        return pod


def key(name: str) -> Key:
    return "default", name


def test_no_more_than_the_bound_and_whoever_waits_longest_is_next() -> None:
    place = Place(most=2)
    assert [place.make(name) for name in "abcd"] == [True, True, False, False]
    place.see("a", "Succeeded")
    assert place.told == ["c"]
    assert not place.make("d"), "it is not the next one"
    assert place.make("c")
    assert not place.make("d")


def test_a_pod_that_is_being_made_has_its_place() -> None:
    place = Place(most=1)
    assert place.take("a")
    assert not place.take("b")
    place.places.leave(key("a"))
    assert place.told == ["b"], "nothing came of it"
    assert place.take("b")


def test_a_pod_that_is_gone_leaves_its_place() -> None:
    place = Place(most=1)
    pod = place.see("of an operator before")
    assert not place.make("a")
    place.cache.forget(pod)
    assert place.told == ["a"]
    assert place.make("a")


def test_who_gives_up_is_not_waited_for() -> None:
    place = Place(most=1)
    place.make("a")
    assert not place.make("b")
    assert not place.make("c")
    place.places.leave(key("b"))
    place.see("a", "Failed")
    assert place.told == ["c"]


def test_who_does_not_come_holds_up_nobody_as_long_as_there_is_another_place() -> None:
    place = Place(most=2)
    for name in "abcd":
        place.make(name)
    place.see("a", "Succeeded")
    place.see("b", "Succeeded")
    assert place.make("d"), "c was told before and has not come"


def test_drivers_need_no_place() -> None:
    place = Place(most=1)
    place.see("driver", label="spark-role")
    assert place.make("a")


def test_a_pod_that_is_being_deleted_has_its_place_but_not_for_ever_where_its_node_is_lost() -> None:
    place, now = Place(most=1), datetime.now(UTC)
    place.see("a", "Running", deletionTimestamp=format_time(now))
    assert not place.make("b")
    place.see("a", "Running", deletionTimestamp=format_time(now - timedelta(minutes=2)))
    assert place.told == ["b"]
    assert place.make("b")
