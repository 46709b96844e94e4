"""Up to when a source that is read to its newest row has rows.

A clock that is wrong can date a row years ahead. If such a row counted as the newest one, all
others, and all of live traffic, would be late.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from backfill.api.quantities import count
from backfill.iceberg.timestamp_units import describe_us
from backfill.planning.file_bounds import unreadable_files
from backfill.planning.parquet_footers import Unreadable, read_footers, read_moments
from backfill.planning.source_files import RowGroup, SourceFiles

DAY_US = 86_400_000_000
"""How far clocks that are only inaccurate are ahead at most."""


@dataclass(slots=True)
class _Found:
    newest_us: list[int] = field(default_factory=list)
    """Timestamps before the limit, with the greatest one among them."""
    far_ahead: int = 0
    """Number of rows with later ones."""


def newest_before(files: SourceFiles, where: str, limit_us: int) -> tuple[int | None, list[str]]:
    """The newest timestamp before a limit, and what a person should know of rows with later ones.
    Files with only such rows are left out.

    Args:
        files: the files of the source, modified in place.
        where: path of the source in the resource.
        limit_us: rows from then on cannot have arrived yet.

    Raises:
        InvalidPlanInput: a file cannot be read.
    """
    late = files.upper_us >= limit_us
    found = _Found(files.upper_us[~late].tolist())
    unreadable: list[Unreadable] = []
    keep = ~late
    chosen = np.flatnonzero(late).tolist()
    for row, footer in zip(chosen, read_footers(files, chosen), strict=True):
        if isinstance(footer, Unreadable):
            unreadable.append(footer)
            continue
        before = len(found.newest_us)
        unreadable += _look(files, row, footer, limit_us, found)
        keep[row] = len(found.newest_us) > before
    if unreadable:
        raise unreadable_files(files, where, unreadable)
    furthest = int(files.upper_us.max()) if len(files) else limit_us
    files.keep(keep)
    notes = []
    if found.far_ahead:
        source = files.source
        notes.append(
            f"source {source.name}: leaves out {count(found.far_ahead, 'row')} with"
            f" {source.timestamp_column} up to {describe_us(furthest)}, more than a day later than"
            f" {source.table} was last written; window.end: Live ends before them"
        )
    return max(found.newest_us, default=None), notes


def _look(
    files: SourceFiles, row: int, footer: Sequence[RowGroup], limit_us: int, found: _Found
) -> Iterator[Unreadable]:
    """Looks at a file with rows from the limit on. Row groups that have others, too, are read."""
    for number, group in enumerate(footer):
        if group.empty:
            continue
        lower = files.lower_us[row] if group.lower_us is None else group.lower_us
        upper = files.upper_us[row] if group.upper_us is None else group.upper_us
        if upper < limit_us:
            found.newest_us.append(int(upper))
        elif lower >= limit_us:
            found.far_ahead += group.rows - max(group.nulls, 0)
        else:
            read = read_moments(files, row, [number])
            if isinstance(read, Unreadable):
                yield read
            elif read is None:  # all that is known is its partition
                found.newest_us.append(limit_us - 1)
            else:
                moments, _ = read
                timely = moments[moments < limit_us]
                found.far_ahead += len(moments) - len(timely)
                if len(timely):
                    found.newest_us.append(int(timely.max()))
