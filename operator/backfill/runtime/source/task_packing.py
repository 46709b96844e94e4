"""Assigns the splits of a step to tasks. The result depends only on the plan, so that a step is
always read in the same way.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heapreplace

from backfill.planning.plan import Split


def pack_by_bytes(splits: Sequence[Split], tasks: int) -> list[tuple[Split, ...]]:
    """Distributes splits over at most ``tasks`` tasks of about equal bytes: the largest first, each
    to the least loaded task (Graham's LPT rule). Within a task, splits keep the order of the plan.
    """
    if not splits:
        return []
    loads = [(0, task) for task in range(min(tasks, len(splits)))]
    heapify(loads)
    chosen: dict[int, list[int]] = defaultdict(list)
    for number in sorted(range(len(splits)), key=lambda number: (-splits[number].bytes, number)):
        load, task = loads[0]
        chosen[task].append(number)
        heapreplace(loads, (load + max(splits[number].bytes, 1), task))
    return [tuple(splits[number] for number in sorted(chosen[task])) for task in sorted(chosen)]


def pack_by_kafka_partition(splits: Sequence[Split], tasks: int) -> list[tuple[Split, ...]]:
    """Distributes Kafka partitions over at most ``tasks`` tasks with about equal numbers of
    offsets. A task gets every split that has rows of its partitions, restricted to their offsets.
    """
    offsets: dict[int, int] = defaultdict(int)
    for each in (each for split in splits for each in split.offsets):
        offsets[each.partition] += each.end - each.start
    groups: list[tuple[int, set[int]]] = [(0, set()) for _ in range(min(tasks, len(offsets)))]
    for partition in sorted(offsets, key=lambda partition: (-offsets[partition], partition)):
        least = min(range(len(groups)), key=lambda group: groups[group][0])
        load, partitions = groups[least]
        groups[least] = (load + offsets[partition], partitions | {partition})
    return [tuple(_only(splits, partitions)) for _, partitions in groups]


def _only(splits: Sequence[Split], partitions: set[int]) -> list[Split]:
    kept = [
        replace(
            split, offsets=tuple(each for each in split.offsets if each.partition in partitions)
        )
        for split in splits
    ]
    return [split for split in kept if split.offsets]
