"""Decides which work is next if there are fewer places than work: namespaces share the places.

Pure.
"""

from collections import Counter
from collections.abc import Iterable

from backfill.kube.object_names import Key


def share_of(places: int, namespaces: int) -> int:
    """Most places that one namespace may have: not all of them, if there is another namespace and
    more than one place.

    Args:
        places: number of places.
        namespaces: number of namespaces that have Backfills, including those that need no place
            now.
    """
    return places if namespaces < 2 else max(places // 2, 1)


def next_turns(
    waiting: Iterable[Key], at_work: Iterable[Key], places: int, share: int
) -> list[Key]:
    """The work that may start now: of the namespaces with the fewest places,
    what has waited longest.

    Args:
        waiting: namespace and name of what waits, in the order of waiting.
        at_work: namespace and name of what has a place.
        places: number of places.
        share: most places that one namespace may have.
    """
    left, busy = list(waiting), Counter(namespace for namespace, _ in at_work)
    turns: list[Key] = []
    for _ in range(places - busy.total()):
        able = [key for key in left if busy[key[0]] < share]
        if not able:
            break
        turns.append(min(able, key=lambda key: busy[key[0]]))  # if several are equal, the first
        left.remove(turns[-1])
        busy[turns[-1][0]] += 1
    return turns
