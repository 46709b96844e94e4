"""Rows that are read no faster than the services behind an application bear."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from time import monotonic

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from backfill.api.spec import BackfillSpec
from backfill.planning.plan import plan_directory
from backfill.planning.planner import make_plan
from backfill.planning.rows.pinned_table import load_source_table
from backfill.planning.workspace import Workspace
from backfill.runtime.source.row_rate_limit import paced
from backfill.runtime.source.schemas import spark_schema
from backfill.runtime.source.source_frame import task_reader
from backfill.runtime.source.step_tasks import StepTask, StepTasks

_START_US = 1_625_961_600_000_000  # 2021-07-11


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
    _written(lake, "clicks", range(30), range(30, 40))
    _written(lake, "views", range(60))
    shares = []
    for read, tasks in _tasks(tmp_path, "WithinLateness", 200, "clicks", "views"):
        for task in tasks:
            rows = sum(split.rows for split in task.splits)
            assert task.rows_per_second is not None
            shares.append((rows, task.rows_per_second))
            begun = monotonic()
            assert sum(batch.num_rows for batch in read(task)) == rows
            assert monotonic() - begun >= rows / task.rows_per_second * 0.99
    assert sum(rate for _, rate in shares) == pytest.approx(200)
    assert sorted(shares) == [(rows, pytest.approx(2 * rows, rel=0.4)) for rows in (10, 30, 60)], (
        "100 rows, 200 a second"
    )


def test_tasks_that_share_files_in_the_order_of_offsets_share_the_rate(
    lake: Catalog, tmp_path: Path
) -> None:
    _written(lake, "clicks", range(40))
    ((_, tasks),) = _tasks(tmp_path, "Strict", 200, "clicks")
    rates = [task.rows_per_second or 0 for task in tasks]
    assert len(rates) == 2
    assert sum(rates) == pytest.approx(200)


def test_a_task_with_more_rows_than_its_slices_seem_to_have_ends(
    lake: Catalog, tmp_path: Path
) -> None:
    """A last row makes a file's rows seem spread over several steps."""
    _written(lake, "clicks", [*range(100), 40 * 60_000_000])
    _written(lake, "views", range(1_000))
    (_, tasks), _ = _tasks(tmp_path, "WithinLateness", 1_000, "clicks", "views")
    (task,) = tasks
    (seeming,) = [split.rows for split in task.splits]
    assert seeming < 25
    assert task.rows_per_second is not None
    assert 100 / task.rows_per_second < 10


def _written(lake: Catalog, name: str, *files: Iterable[int]) -> None:
    """A table with files of rows at these microseconds, of two Kafka partitions."""
    kind = pa.timestamp("us", tz="UTC")
    schema = pa.schema([("at", kind), ("partition", pa.int64()), ("offset", pa.int64())])
    table = lake.create_table(f"raw.{name}", schema)
    for moments in files:
        numbers = list(moments)
        at = pa.array([_START_US + moment for moment in numbers], kind)
        halves = [[number % 2 for number in numbers], [number // 2 for number in numbers]]
        table.append(pa.table([at, *map(pa.array, halves)], schema=schema))


def _tasks(
    directory: Path, policy: str, rate: int, *names: str
) -> list[tuple[Callable[[StepTask], Iterable[pa.RecordBatch]], list[StepTask]]]:
    """By source, what reads it, and the tasks of the first step."""
    kafka = {"partitionColumn": "partition", "offsetColumn": "offset"}
    spec = BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "app"},
            "window": {"start": "2021-07-11T00:00:00Z", "end": "2021-07-11T01:00:00Z"},
            "sources": [
                {
                    "name": name,
                    "table": f"lake.raw.{name}",
                    "timestampColumn": "at",
                    "kafka": kafka,
                }
                for name in names
            ],
            "ordering": {"policy": policy},
        }
    )
    workspace = Workspace(str(directory))
    header = make_plan(spec, workspace, parallelism=2)
    plan = plan_directory(workspace, header.plan_id)
    found = []
    for described in header.inputs.sources:
        table = load_source_table(described)
        schema = spark_schema(table.open().schema, described.table)
        read = partial(task_reader(header, table, schema, None), step=0, number=0, columns=None)
        found.append((read, StepTasks(plan, described.name, rate).of(0)))
    return found
