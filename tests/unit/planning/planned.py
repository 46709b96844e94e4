"""Plans over real Iceberg tables, and the rows a plan's splits would read of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backfill.api.spec import BackfillSpec
from backfill.planning.plan import PlanHeader, Split, plan_directory, read_splits
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace

DAY_US = 1_772_323_200_000_000
"""2026-03-01T00:00:00Z."""
HOUR_US = 3_600_000_000


def spec(*sources: dict[str, Any], **fields: Any) -> BackfillSpec:
    """A Backfill of 1 March 2026 from 06:00 to 12:00."""
    window = {"start": "2026-03-01T06:00:00Z", "end": "2026-03-01T12:00:00Z"}
    return BackfillSpec.model_validate(
        {"applicationRef": {"name": "app"}, "window": window, "sources": sources, **fields}
    )


def source(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "table": f"lake.raw.{name}", "timestampColumn": "ts", **fields}


@dataclass(frozen=True)
class Planned:
    header: PlanHeader
    splits: list[Split]

    @property
    def files(self) -> set[str]:
        """Names of the files that are read."""
        return {split.path.rpartition("/")[2] for split in self.splits}


def plan(workspace: object, *sources: dict[str, Any], **fields: Any) -> Planned:
    place = Workspace(str(workspace))
    header = make_plan(spec(*sources, **fields), place, parallelism=2)
    directory = plan_directory(place, header.plan_id)
    names = [total.name for total in header.sources]
    return Planned(
        header,
        [
            s
            for step in range(header.steps)
            for name in names
            for s in read_splits(directory, step, name)
        ],
    )


def moments_read(
    splits: Sequence[Split], column: str, unit_us: Fraction = Fraction(1)
) -> list[int]:
    """The column's values in the rows the splits read, sorted; one unit of them is ``unit_us``
    microseconds.
    """
    values = []
    for split in splits:
        file = pq.ParquetFile(split.path)
        table = (
            file.read()
            if split.row_groups is None
            else file.read_row_groups(list(split.row_groups))
        )
        array = table[column.split(".", maxsplit=1)[0]].combine_chunks()
        for part in column.split(".")[1:]:
            array = array.field(part)
        inside = (split.slice_start_us, split.slice_end_us)
        for value in array.cast(pa.int64()).to_pylist():
            if inside[0] is None or (
                value is not None and inside[0] <= value * unit_us < inside[1]
            ):
                values.append(value)
    return sorted(values)


def hourly(hours: int = 24, per_hour: int = 6) -> list[int]:
    """Moments spread evenly over the first hours of the day."""
    return [DAY_US + number * HOUR_US // per_hour for number in range(hours * per_hour)]
