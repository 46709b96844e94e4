"""How far behind Kafka a query is, by the progress that Spark reports. Does not use Spark."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

KafkaPartition = tuple[str, str]
"""A topic and a partition."""
_MOST_SEEN = 1_000
"""Observations of a query that is far behind. Every second one is forgotten where there are more:
the lag is then known less exactly, and never too small.
"""


@dataclass(frozen=True, slots=True)
class ObservedEnds:
    """What Kafka had at one moment."""

    at_us: int
    ends: Mapping[KafkaPartition, int]
    """By partition, the offset after its last record."""


@dataclass
class Lag:
    """Follows one query.

    Everything that Kafka had when its ends were observed is committed once the query has got to
    these ends. So the query is at most as far behind as the newest such observation is old.
    """

    behind: int | None = None
    """Records that are not committed, of all partitions; None before the first micro-batch."""
    _caught_up_us: int | None = None
    _seen: list[ObservedEnds] = field(default_factory=list)
    _empty_at: Mapping[KafkaPartition, int] | None = None
    """Where the last micro-batch was, if it has read nothing."""

    def committed(
        self,
        began_us: int,
        rows: int,
        ends: Mapping[KafkaPartition, int],
        latest: Mapping[KafkaPartition, int],
    ) -> None:
        """A micro-batch that began at a moment was committed, with a number of rows that it has
        read. ``ends`` are the offsets after them, ``latest`` those that Kafka had. These are
        unknown of a micro-batch that an earlier driver has begun: Spark runs it again without
        asking Kafka.

        What a second one in the same place does not read are no records: in real-time mode offsets
        end after the last record, and the end of a transaction comes after it.
        """
        if not ends.keys() <= latest.keys():
            return
        empty_at, self._empty_at = self._empty_at, None if rows else ends
        if self._empty_at is not None and self._empty_at == empty_at:
            self._caught_up_us, self._seen, self.behind = began_us, [], 0
            return
        self._seen.append(ObservedEnds(began_us, latest))
        done = [each for each in self._seen if _covers(ends, each.ends)]
        if done:
            self._caught_up_us = max(each.at_us for each in done)
        self._seen = [each for each in self._seen if not _covers(ends, each.ends)]
        if len(self._seen) > _MOST_SEEN:
            self._seen = self._seen[::2]
        self.behind = sum(max(end - ends.get(place, 0), 0) for place, end in latest.items())

    def idle(self, at_us: int) -> None:
        """There was nothing to read, or less than the program waits for."""
        if not self.behind:
            self._caught_up_us, self._seen, self.behind = at_us, [], 0

    def seconds(self, now_us: int) -> float | None:
        """The lag; None as long as the query has not committed what Kafka had at its start."""
        return None if self._caught_up_us is None else max(now_us - self._caught_up_us, 0) / 1e6


def offsets_of(text: str | None) -> dict[KafkaPartition, int]:
    """The offsets of a Kafka source in a progress event; none for any other source."""
    try:
        topics = json.loads(text or "null")
        return {
            (topic, partition): int(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        return {}


def _covers(ends: Mapping[KafkaPartition, int], seen: Mapping[KafkaPartition, int]) -> bool:
    return all(ends.get(place, 0) >= end for place, end in seen.items())
