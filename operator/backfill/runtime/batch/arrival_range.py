"""What a run reads of one file, as a range of arrival times: what Spark can filter by, and skip row
groups by.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backfill.planning.footers import RowGroup
from backfill.planning.plan import Split

_Range = tuple[int, int]
_NOTHING: _Range = (0, 0)


@dataclass(frozen=True, slots=True, order=True)
class ArrivalRange:
    """The rows of a file that arrived in [start, end), in microseconds; None is no limit."""

    start_us: int | None = None
    end_us: int | None = None
    timed: bool = False
    """Only rows that have a time."""

    @property
    def is_all(self) -> bool:
        """Whether every row is read."""
        return self == ArrivalRange()


def arrival_range(splits: Sequence[Split], groups: Sequence[RowGroup]) -> ArrivalRange | None:
    """The range in which exactly the rows of these splits of a file arrived.

    None if there is no such range, or none that the statistics of the file's row groups prove.
    """
    wanted = _slices_of_groups(splits, len(groups))
    if wanted is None:
        return None
    if all(wanted.get(number) == [] for number in range(len(groups))):
        return ArrivalRange()
    read: list[_Range] = []
    for number, group in enumerate(groups):
        found = _read_of_group(wanted.get(number), group)
        if found is None:
            return None
        read.append(found)
    some = [each for each in read if each != _NOTHING]
    if not some:
        return None
    start, end = min(each[0] for each in some), max(each[1] for each in some)
    held = [_held(group) for group in groups]
    if any(_overlap((start, end), of) != found for of, found in zip(held, read, strict=True)):
        return None
    timed = [each for each in held if each != _NOTHING]
    return ArrivalRange(
        start if any(first < start for first, _ in timed) else None,
        end if any(last > end for _, last in timed) else None,
        timed=any(group.nulls for group in groups),
    )


def _slices_of_groups(splits: Sequence[Split], groups: int) -> Mapping[int, list[_Range]] | None:
    """The slices that are read of each row group, an empty list for all of it. None if a row might
    be read twice, or the file has fewer row groups.
    """
    found: dict[int, list[_Range]] = {}
    whole: set[int] = set()
    for split in splits:
        for number in split.row_groups if split.row_groups is not None else range(groups):
            slices = found.setdefault(number, [])
            again = number in whole or (split.slice_start_us is None and slices)
            if again or number >= groups:
                return None
            if split.slice_start_us is None or split.slice_end_us is None:
                whole.add(number)
            else:
                slices.append((split.slice_start_us, split.slice_end_us))
    return found


def _read_of_group(slices: list[_Range] | None, group: RowGroup) -> _Range | None:
    """Between which moments rows of a group are read; None if that cannot be said."""
    if group.empty:
        return _NOTHING if slices is None or slices else None
    if group.lower_us is None or group.upper_us is None:
        return None
    if slices is None:
        return _NOTHING
    if not slices:
        return None if group.nulls else _held(group)
    parts = [_overlap(each, _held(group)) for each in slices]
    some = [part for part in parts if part != _NOTHING]
    return None if len(some) > 1 else some[0] if some else _NOTHING


def _held(group: RowGroup) -> _Range:
    """Between which moments rows of a group arrived."""
    if group.lower_us is None or group.upper_us is None:
        return _NOTHING
    return group.lower_us, group.upper_us + 1


def _overlap(one: _Range, other: _Range) -> _Range:
    start, end = max(one[0], other[0]), min(one[1], other[1])
    return (start, end) if start < end else _NOTHING
