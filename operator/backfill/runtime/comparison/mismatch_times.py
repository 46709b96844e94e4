"""Where in the window the rows are that do not match: in one part of it, or near its ends, whose
results need what is read before and after it.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from statistics import median_low
from typing import Any, Final, Literal

from backfill.api.quantities import format_time, from_us, parse_time, to_us
from backfill.runtime.comparison.count_matches import KINDS

_MOST: Final = Fraction(9, 10)
"""So much of what does not match is worth saying, if it has one thing in common."""
_PART = Fraction(3, 4)
"""What has more of all rows is not a part."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the window that has most of the rows that do not match, without repeated ones."""

    where: str
    """In words."""
    at_start: bool
    """Whether it is, or has, the start of the window."""
    at_end: bool
    different: int
    missing: int
    extra: int
    matching: int
    """Also those of another kind that both sides have."""
    whole: int
    """How many rows of these kinds the whole window has."""

    @property
    def apart(self) -> int:
        """How many rows of it do not match."""
        return self.different + self.missing + self.extra

    def mostly(self, kind: Literal["missing", "extra"]) -> bool:
        """Whether nearly all of them are of one kind."""
        return bool(getattr(self, kind) >= self.apart * _MOST)


def part_of(document: Mapping[str, Any], kinds: Collection[str] = KINDS) -> Part | None:
    """The shortest part of the window that has most of the rows that do not match, of some kinds;
    None if they are spread over it. The end of the window and its start, together, are a part, too.
    """
    window = _Window(document, kinds)
    whole = sum(window.apart)
    if not whole:
        return None
    first, count = _widened(*_shortest(window.apart, whole * _MOST), window)
    places = [place % len(window.apart) for place in range(first, first + count)]
    if sum(window.rows[place] for place in places) > sum(window.rows) * _PART:
        return None
    if 2 * sum(window.apart[place] > 0 for place in places) <= count:
        return None  # a few, which are far from each other
    return window.part(places, whole)


def times_of(document: Mapping[str, Any], kind: str) -> str:
    """From when to when the repeated rows of a kind are, in words; empty if that is most of the
    window.
    """
    window = _Window(document, (kind,))
    places = [place for place, each in enumerate(window.stretches) if each["repeated"][kind]]
    if not places or 2 * (places[-1] - places[0] + 1) > len(window.stretches):
        return ""
    return window.between(places[0], places[-1])


class _Window:
    """The stretches of a window that have rows, in order. Their places are their indexes."""

    def __init__(self, document: Mapping[str, Any], kinds: Collection[str]):
        self.stretches: Sequence[Mapping[str, Any]] = document["byTime"]
        self.apart = [_unmatched(each, kinds) for each in self.stretches]
        self.rows = [each["matching"] + _unmatched(each, KINDS) for each in self.stretches]
        self._kinds = kinds
        self._document = document
        self._numbers = [each["number"] for each in self.stretches]
        gaps = [after - before for before, after in pairwise(self._numbers)]
        self._step = median_low(gaps) if gaps else 1
        """Results of a day or an hour are that many stretches apart."""

    def part(self, places: Sequence[int], whole: int) -> Part:
        """Some consecutive places; after the last one comes the first one."""
        last = len(self._numbers) - 1
        at_start = 0 in places and self._numbers[0] < self._step
        at_end = last in places and self._numbers[last] + self._step >= self._document["stretches"]
        before = [self.between(0, places[-1])] if 0 in places[1:] else []
        times = " and ".join([*before, self.between(places[0], last if before else places[-1])])
        edges = [
            f"the {edge}" for edge, is_edge in (("start", at_start), ("end", at_end)) if is_edge
        ]
        of_window = f"at {' and '.join(edges)} of the window" if edges else "in the stretch"
        chosen = [self.stretches[place] for place in places]
        different = self._of_kind("different", chosen)
        return Part(
            where=f"{of_window}{',' if edges else ''} {times}",
            at_start=at_start,
            at_end=at_end,
            different=different,
            missing=self._of_kind("missing", chosen),
            extra=self._of_kind("extra", chosen),
            matching=sum(each["matching"] + each["different"] for each in chosen) - different,
            whole=whole,
        )

    def _of_kind(self, kind: str, chosen: Sequence[Mapping[str, Any]]) -> int:
        return sum(_unmatched(each, (kind,)) for each in chosen) if kind in self._kinds else 0

    def between(self, first: int, last: int) -> str:
        """From the start of one place to the end of another, in words."""
        numbers, total = self._numbers, self._document["stretches"]
        end = min([numbers[last] + self._step, *numbers[last + 1 : last + 2], total])
        return f"from {self._time(numbers[first])} to before {self._time(end)}"

    def _time(self, number: int) -> str:
        window, width_us = self._document["window"], self._document["stretchSeconds"] * 1_000_000
        start_us, end_us = (to_us(parse_time(window[edge])) for edge in ("start", "end"))
        return format_time(from_us(min(start_us + number * width_us, end_us)))


def _unmatched(each: Mapping[str, Any], kinds: Collection[str]) -> int:
    return sum(int(each[kind]) - each["repeated"].get(kind, 0) for kind in kinds)


def _shortest(apart: Sequence[int], enough: Fraction) -> tuple[int, int]:
    """The first place and the number of the fewest places that have enough in all, one after the
    other; after the last place comes the first one.
    """
    sums = list(accumulate((*apart, *apart), initial=0))
    lengths = (
        (bisect_left(sums, sums[first] + enough) - first, first) for first in range(len(apart))
    )
    # the same number without going around is a better answer
    count, _, first = min((count, first + count > len(apart), first) for count, first in lengths)
    return first, count


def _widened(first: int, count: int, window: _Window) -> tuple[int, int]:
    """With the places beside it of which as much does not match: less than all were enough."""
    size = len(window.apart)

    def share(places: Sequence[int]) -> Fraction:
        rows = sum(window.rows[place % size] for place in places)
        return Fraction(sum(window.apart[place % size] for place in places), max(rows, 1))

    least = share(range(first, first + count)) / 2
    while count < size and share([first + count]) >= least:
        count += 1
    while count < size and share([first - 1]) >= least:
        first, count = first - 1, count + 1
    return first % size, count
