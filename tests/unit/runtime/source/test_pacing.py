"""Rows that are read no faster than the services behind an application bear."""

from pathlib import Path
from time import monotonic

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyspark.sql.pandas.types import to_arrow_schema

from backfill.api.spec import BackfillSpec
from backfill.planning.plan import plan_directory
from backfill.planning.planner import make_plan
from backfill.planning.rows.table import load_source_table
from backfill.planning.workspace import Workspace
from backfill.runtime.source.data_source import StepPartition, StepReader
from backfill.runtime.source.pacing import paced
from backfill.runtime.source.schemas import spark_schema


class Time:
    """A clock that only goes on while something waits."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(
    st.lists(st.integers(1, 50), max_size=10),
    st.floats(0.5, 100),
    st.lists(st.floats(0, 3), min_size=5, max_size=5),
)
def test_no_second_has_more_rows_than_allowed(
    batches: list[int], rate: float, work: list[float]
) -> None:
    """Whatever the work takes that the application has with the rows."""
    time, given, numbers = Time(), [], []
    first = 0
    for rows in batches:
        numbers.append(pa.record_batch({"id": range(first, first + rows)}))
        first += rows
    for place, part in enumerate(paced(numbers, rate, clock=time.clock, sleep=time.sleep)):
        given.append((time.now, part.num_rows))
        time.now += work[place % len(work)]
    assert sum(rows for _, rows in given) == first
    for start, (begun, _) in enumerate(given):
        for end in range(start + 1, len(given)):
            elapsed = given[end][0] - begun
            assert sum(rows for _, rows in given[start + 1 : end + 1]) <= elapsed * rate * 1.001 + 1
    assert not given or given[0][0] - 1_000 >= given[0][1] / rate * 0.999


def test_the_tasks_of_a_step_share_the_rate_of_all_its_sources(
    lake: Catalog, tmp_path: Path
) -> None:
    start = 1_625_961_600_000_000  # 2021-07-11
    kind = pa.timestamp("us", tz="UTC")
    for name, files in (("clicks", (30, 10)), ("views", (60,))):
        table = lake.create_table(f"raw.{name}", pa.schema([("at", kind)]))
        for rows in files:
            table.append(pa.table({"at": pa.array(range(start, start + rows), kind)}))
    names = ("clicks", "views")
    spec = BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "app"},
            "window": {"start": "2021-07-11T00:00:00Z", "end": "2021-07-11T01:00:00Z"},
            "sources": [
                {"name": name, "table": f"lake.raw.{name}", "timestampColumn": "at"}
                for name in names
            ],
        }
    )
    workspace = Workspace(str(tmp_path))
    header = make_plan(spec, workspace, parallelism=2)
    directory = plan_directory(workspace, header.plan_id)
    seconds = []
    for described in header.inputs.sources:
        table = load_source_table(described)
        schema = spark_schema(table.open().schema, described.table)
        assert to_arrow_schema(schema, timezone="UTC")
        reader = StepReader(table, directory, str(tmp_path), schema, None, rate=200)
        offsets = ({"source": described.name, "step": step} for step in (0, 1))
        for partition in reader.partitions(*offsets):
            assert isinstance(partition, StepPartition)
            assert partition.rows_per_second is not None
            rows = sum(split.rows for split in partition.splits)
            seconds.append(rows / partition.rows_per_second)
            begun = monotonic()
            assert sum(batch.num_rows for batch in reader.read(partition)) == rows
            assert monotonic() - begun >= seconds[-1] * 0.99
    assert seconds == pytest.approx([0.5] * 3), "100 rows, 200 a second"
