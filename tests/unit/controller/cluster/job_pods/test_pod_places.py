"""How many pods of jobs there are at the same time, and whose turn is next."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.api.quantities import format_time
from backfill.controller.cluster.job_pods.pod_limit import PodPlaces
from backfill.controller.cluster.job_pods.pod_manifests import JOB_LABEL
from backfill.controller.jobs.fair_shares import next_turns, share_of
from backfill.kube.cache import Cache, labelled_key, own_key
from backfill.kube.object_names import BACKFILL_LABEL, Key, owner_reference


class Place:
    """Places for the pods of a cache, and who was told that it is worth asking."""

    def __init__(self, most: int, namespaces: Callable[[], int] = lambda: 1) -> None:
        self.cache = Cache(labelled_key)
        self.backfills = Cache(own_key)
        self.places = PodPlaces(self.cache, most, self.backfills, namespaces)
        self.told: list[str] = []
        self._versions = count(1)

    def take(self, name: str, namespace: str = "default") -> bool:
        return self.places.take(key(name, namespace), lambda: self.told.append(name))

    def make(self, name: str, namespace: str = "default") -> bool:
        """Makes a pod if it may."""
        if not self.take(name, namespace):
            return False
        self.see(name, namespace=namespace)
        self.places.leave(key(name, namespace))
        return True

    def see(
        self,
        name: str,
        phase: str = "Pending",
        label: str = JOB_LABEL,
        *,
        namespace: str = "default",
        **more: Any,
    ) -> dict[str, Any]:
        """The pod of a Backfill; ``called`` is its own name."""
        backfill = {
            "namespace": namespace,
            "name": name,
            "uid": f"uid of {name}",
            "resourceVersion": "1",
        }
        self.backfills.put({"metadata": backfill})
        pod_name = more.pop("called", key(name)[1])
        metadata = {
            "namespace": namespace,
            "name": pod_name,
            "uid": pod_name,
            "resourceVersion": str(next(self._versions)),
            "labels": {BACKFILL_LABEL: name, label: "plan"},
            "ownerReferences": [owner_reference(name, f"uid of {name}")],
        }
        pod = {"metadata": metadata | more, "status": {"phase": phase}}
        self.cache.put(pod)
        return pod


def key(name: str, namespace: str = "default") -> Key:
    return namespace, f"{name}-job-0123456789"


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
    pod = place.see("of-an-operator-before")
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


def test_a_pod_that_is_being_deleted_has_its_place_but_not_for_ever_where_its_node_is_lost() -> (
    None
):
    place, now = Place(most=1), datetime.now(UTC)
    place.see("a", "Running", deletionTimestamp=format_time(now))
    assert not place.make("b")
    place.see("a", "Running", deletionTimestamp=format_time(now - timedelta(minutes=2)))
    assert place.told == ["b"]
    assert place.make("b")


@pytest.mark.hostile
@pytest.mark.parametrize(
    "forged",
    [
        {"ownerReferences": []},
        {"ownerReferences": [owner_reference("x", "another uid")]},
        {"ownerReferences": [owner_reference("x", "uid of x") | {"controller": False}]},
        {"called": "x-job-forged"},
        {"called": "y-job-0123456789"},
        {"labels": {BACKFILL_LABEL: "of nobody", JOB_LABEL: "plan"}},
    ],
    ids=str,
)
def test_a_pod_that_no_operator_made_takes_no_place(forged: dict[str, Any]) -> None:
    place = Place(most=1)
    place.see("x", "Running", namespace="team-a", **forged)
    assert place.make("july", "team-b")


@pytest.mark.hostile
def test_of_ten_pods_that_look_like_those_of_one_backfill_one_takes_a_place() -> None:
    place = Place(most=2)
    for number in range(10):
        place.see("x", "Running", namespace="team-a", called=f"x-job-{number:010x}")
    assert place.make("july", "team-b")
    assert not place.make("august", "team-b")


@pytest.mark.hostile
def test_a_namespace_has_no_more_than_half_of_the_places_where_there_are_others() -> None:
    place = Place(most=4, namespaces=lambda: 2)
    assert [place.make(f"x{number}", "team-a") for number in range(6)] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert place.make("july", "team-b")
    assert place.make("august", "team-b")
    place.see("july", "Succeeded", namespace="team-b")
    assert not place.make("x5", "team-a")
    place.see("x0", "Succeeded", namespace="team-a")
    assert place.told[-1] == "x2"


@pytest.mark.hostile
@given(
    waiting=st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=3)), unique=True),
    at_work=st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=3)), unique=True),
    places=st.integers(1, 12),
    namespaces=st.integers(0, 3),
)
def test_shares_hold_whoever_comes(
    waiting: list[Key], at_work: list[Key], places: int, namespaces: int
) -> None:
    share = share_of(places, namespaces)
    turns = next_turns(waiting, at_work, places, share)
    assert not turns or len(turns) + len(at_work) <= places
    busy = Counter(namespace for namespace, _ in (*at_work, *turns))
    assert all(busy[namespace] <= share for namespace, _ in turns)
    assert share < places or namespaces < 2 or places == 1
    for namespace in "abc":  # of one namespace whoever waits longest
        own = [key for key in waiting if key[0] == namespace]
        assert [key for key in turns if key[0] == namespace] == own[
            : sum(key[0] == namespace for key in turns)
        ]
    if len(turns) + len(at_work) < places:  # nobody waits in vain
        assert all(key in turns or busy[key[0]] >= share for key in waiting)
