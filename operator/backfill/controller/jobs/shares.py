"""Whose turn it is where there are fewer places than there is work: namespaces share them. Pure."""

from collections import Counter
from collections.abc import Iterable

from backfill.kube.names import Key


def share_of(places: int, namespaces: int) -> int:
    """The most places that one namespace may have: never all of them, where there is another
    namespace and more than one place.

    Args:
        places: all of them.
        namespaces: how many have Backfills, also those that need no place now.
    """
    return places if namespaces < 2 else max(places // 2, 1)


def next_turns(
    waiting: Iterable[Key], at_work: Iterable[Key], places: int, share: int
) -> list[Key]:
    """Who may begin now: of the namespaces with the fewest at work whoever waits longest.

    Args:
        waiting: namespace and name, whoever waits longest first.
        at_work: the same of those that have a place.
        places: all of them.
        share: the most that one namespace may have.
    """
    left, busy = list(waiting), Counter(namespace for namespace, _ in at_work)
    turns: list[Key] = []
    for _ in range(places - busy.total()):
        able = [key for key in left if busy[key[0]] < share]
        if not able:
            break
        turns.append(min(able, key=lambda key: busy[key[0]]))  # of equals the first
        left.remove(turns[-1])
        busy[turns[-1][0]] += 1
    return turns
