"""A cache never goes back, whatever arrives late, twice or not at all."""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backfill.kube.cache import Cache, labelled_key, own_key
from backfill.kube.object_names import BACKFILL_LABEL

KEY = ("streaming", "july")


def backfill(
    version: int, uid: str = "first", name: str = "july", **metadata: Any
) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "streaming",
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
            **metadata,
        }
    }


def kept_version(cache: Cache) -> str | None:
    kept = cache.get(*KEY)
    return kept["metadata"]["resourceVersion"] if kept else None


def test_a_later_version_takes_the_place_of_an_earlier_one() -> None:
    cache = Cache(own_key)
    cache.put(backfill(9))
    cache.put(backfill(10))
    assert kept_version(cache) == "10"


def test_an_earlier_version_that_comes_late_is_left_aside() -> None:
    cache = Cache(own_key)
    cache.put(backfill(10))
    cache.put(backfill(9))
    assert kept_version(cache) == "10"


def test_an_answer_that_comes_after_the_end_does_not_bring_the_object_back() -> None:
    cache = Cache(own_key)
    cache.put(backfill(5))
    cache.forget(backfill(7))
    cache.put(backfill(6))
    assert cache.get(*KEY) is None


def test_an_object_made_again_under_the_name_of_one_that_is_gone_is_kept() -> None:
    cache = Cache(own_key)
    cache.put(backfill(5))
    cache.forget(backfill(7))
    cache.put(backfill(8, uid="second"))
    assert kept_version(cache) == "8"


def test_the_late_end_of_an_earlier_object_leaves_the_one_that_has_its_name_now() -> None:
    cache = Cache(own_key)
    cache.put(backfill(8, uid="second"))
    cache.forget(backfill(7, uid="first"))
    assert kept_version(cache) == "8"


def test_what_a_complete_list_does_not_name_is_gone_unless_it_is_newer_than_the_list() -> None:
    cache = Cache(own_key)
    cache.put(backfill(5, name="old"))
    cache.put(backfill(20, name="new"))
    cache.replace([backfill(9)], resource_version="10")
    assert sorted(name for _, name in list(cache.keys())) == ["july", "new"]


def test_what_a_list_does_not_name_is_told_and_does_not_come_back_with_a_late_answer() -> None:
    cache, heard = Cache(own_key), []
    cache.put(backfill(10))
    cache.listen(heard.append)
    cache.replace([], resource_version="10")
    assert heard == [KEY]
    cache.put(backfill(9))
    assert cache.get(*KEY) is None


def test_listeners_hear_of_changes_only() -> None:
    cache, heard = Cache(own_key), []
    cache.listen(heard.append)
    cache.put(backfill(5))
    cache.put(backfill(5))
    cache.put(backfill(4))
    cache.forget(backfill(6))
    cache.forget(backfill(6))
    assert heard == [KEY, KEY]


def test_children_are_found_by_their_backfill_and_told_apart_by_who_made_them() -> None:
    cache = Cache(labelled_key)
    owner = {"uid": "second", "controller": True}
    cache.put(
        backfill(
            1,
            name="july-a1",
            labels={BACKFILL_LABEL: "july"},
            ownerReferences=[{**owner, "uid": "first"}],
        )
    )
    cache.put(backfill(2, name="july-a2", labels={BACKFILL_LABEL: "july"}, ownerReferences=[owner]))
    cache.put(backfill(3, name="august-a1", labels={BACKFILL_LABEL: "august"}))
    cache.put(backfill(4, name="somebody-elses"))
    assert sorted(child["metadata"]["name"] for child in cache.of(KEY)) == ["july-a1", "july-a2"]
    assert [child["metadata"]["name"] for child in cache.owned_by(KEY, "second")] == ["july-a2"]


def test_a_child_that_changes_its_label_belongs_to_one_backfill_only() -> None:
    cache = Cache(labelled_key)
    cache.put(backfill(1, name="a", labels={BACKFILL_LABEL: "july"}))
    cache.put(backfill(2, name="a", labels={BACKFILL_LABEL: "august"}))
    cache.forget(backfill(3, name="a", labels={BACKFILL_LABEL: "august"}))
    assert cache.of(KEY) == []
    assert cache.of(("streaming", "august")) == []


def test_managed_fields_are_not_kept_and_the_callers_object_stays_as_it_is() -> None:
    cache, given_object = Cache(own_key), backfill(1, managedFields=[{"manager": "somebody"}])
    cache.put(given_object)
    assert "managedFields" not in cache.get(*KEY)["metadata"]  # type: ignore[index]
    assert "managedFields" in given_object["metadata"]


def test_the_end_of_a_later_object_is_the_end_of_the_earlier_one_too() -> None:
    cache = Cache(own_key)
    cache.put(backfill(3, uid="first"))
    cache.forget(backfill(7, uid="second"))
    assert cache.get(*KEY) is None


@given(st.permutations(range(1, 8)), st.data())
def test_in_whatever_order_the_history_of_a_name_arrives_the_last_word_stands(
    order: list[int], data: st.DataObject
) -> None:
    """Versions 1 to 7 of one name; at some of them the object ends, and the next is another
    object.
    """
    ends = data.draw(st.sets(st.integers(1, 7)))
    cache = Cache(own_key)
    for version in order:
        uid = str(sum(end < version for end in ends))
        (cache.forget if version in ends else cache.put)(backfill(version, uid))
    assert kept_version(cache) == (None if 7 in ends else "7")


def test_namespaces_are_counted_while_they_have_an_object() -> None:
    cache = Cache(own_key)
    elsewhere = {"metadata": backfill(6)["metadata"] | {"namespace": "ads"}}
    cache.put(backfill(5))
    cache.put(backfill(7))
    cache.put(elsewhere)
    assert cache.namespaces == 2
    cache.forget(backfill(8))
    assert cache.namespaces == 1
    cache.replace([], "9")
    assert cache.namespaces == 0


def test_an_object_that_is_being_replaced_is_never_missing() -> None:
    cache = Cache(own_key)
    cache.put(backfill(version=1))
    versions = (backfill(version=version) for version in range(2, 20_000))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as pool:
            replacing = pool.submit(lambda: [cache.put(each) for each in versions])
            missing = 0
            while not replacing.done():
                missing += cache.get(*KEY) is None
    finally:
        sys.setswitchinterval(interval)
    assert missing == 0
    assert kept_version(cache) == "19999"
