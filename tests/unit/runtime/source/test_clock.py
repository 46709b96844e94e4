"""What a task of a step reads by the ticks of its source, and by what the driver has announced."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from files_of_a_table import v3_table
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, TimestampType
from pyspark import TaskContext
from pyspark.sql.types import StructType

from backfill.api.errors import InvalidPlanInput, PlanCorrupt
from backfill.planning.plan import (
    PlanHeader,
    PlanInputs,
    Proof,
    Split,
    splits_schema,
    write_plan,
)
from backfill.planning.workspace import Workspace
from backfill.runtime.source.clock import Announcement, Ticks, reader_of_ticks
from backfill.runtime.source.source_frame import task_reader
from backfill.runtime.source.step_tasks import StepTask, StepTasks

STEPS, TASKS = 3, 2
EVENTS, PLAYS = 0, 1
"""Places of sources in a plan."""
SPLIT = {
    **{"step": 0, "source": "events", "path": "/events.parquet", "format": "parquet"},
    **dict.fromkeys(("file_bytes", "lower_us", "upper_us", "rows", "bytes", "spec_id"), 1),
    "partition": "{}",
}
Read = list[tuple[StepTask, int, int, frozenset[str] | None]]
"""What tasks were asked to read."""


class InATask:
    """A process of Python as a task uses it; what was announced in the driver is known there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.properties: dict[str, str] = {}
        context = TaskContext()
        context._localProperties = self.properties
        monkeypatch.setattr(TaskContext, "_taskContext", context)

    def announce(self, announcement: Announcement) -> None:
        driver: Any = SimpleNamespace(
            sparkContext=SimpleNamespace(setLocalProperty=self.properties.__setitem__)
        )
        announcement.make(driver)

    def read(self, *ticks: pa.RecordBatch, source: str = "events", place: int = EVENTS) -> Read:
        """What a source reads at these ticks."""
        asked: Read = []

        def read_task(*arguments: Any) -> Ticks:
            asked.append(arguments)
            yield from ()

        assert not list(reader_of_ticks(source, place, TASKS, read_task)(iter(ticks)))
        return asked


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> InATask:
    return InATask(monkeypatch)


def tick(place: int, step: int, number: int = 0) -> pa.RecordBatch:
    """What the clock gives a task in a step of the source in this place of the plan."""
    at = pa.array([((place << 40) + step) * 1_000], pa.timestamp("us", "UTC"))
    return pa.record_batch({"timestamp": at, "value": pa.array([step * TASKS + number])})


def tasks(*paths: str) -> list[StepTask]:
    nothing = dict.fromkeys(("row_groups", "slice_start_us", "slice_end_us"))
    return [StepTask((Split(**{**SPLIT, **nothing, "path": path}),)) for path in paths]


def test_each_task_reads_its_own_part_of_the_step_and_only_the_columns_that_matter(
    task: InATask,
) -> None:
    first, second = both = tasks("/a", "/b")
    task.announce(Announcement.of("events", 1, both, {"id", "at"}))
    columns = frozenset({"id", "at"})
    assert task.read(tick(EVENTS, 1, 0)) == [(first, 1, 0, columns)]
    assert task.read(tick(EVENTS, 1, 1)) == [(second, 1, 1, columns)]
    task.announce(Announcement.of("events", 2, tasks("/c"), None))
    assert task.read(tick(EVENTS, 2, 0)) == [(*tasks("/c"), 2, 0, None)]
    assert task.read(tick(EVENTS, 2, 1)) == [], "the step has only one task"
    task.announce(Announcement.of("events", STEPS, [], None))
    assert task.read(tick(EVENTS, STEPS, 0), tick(EVENTS, STEPS, 1)) == [], "the flush"


@pytest.mark.parametrize(
    ("announced", "step"), [(None, 0), (0, 1), (1, 0)], ids=["nothing", "one before", "one after"]
)
def test_rows_that_are_not_announced_are_an_error_and_never_none_or_those_of_another_step(
    task: InATask, announced: int | None, step: int
) -> None:
    if announced is not None:
        task.announce(Announcement.of("events", announced, tasks("/a"), None))
    task.announce(Announcement.of("plays", step, tasks("/b"), None))
    with pytest.raises(InvalidPlanInput, match="rows of events are read in a thread that cannot"):
        task.read(tick(EVENTS, step))


def test_rows_that_are_read_outside_of_a_task_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    task = InATask(monkeypatch)
    task.announce(Announcement.of("events", 0, tasks("/a"), None))
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    with pytest.raises(InvalidPlanInput, match="rows of events are read in a thread that cannot"):
        task.read(tick(EVENTS, 0))


def test_a_checkpoint_in_which_another_source_stands_is_refused(task: InATask) -> None:
    for name in ("events", "plays"):
        task.announce(Announcement.of(name, 1, tasks("/a"), None))
    with pytest.raises(PlanCorrupt, match="where the application now reads events: the order"):
        task.read(tick(PLAYS, 1))
    with pytest.raises(PlanCorrupt, match="where the application now reads plays: the order"):
        task.read(tick(EVENTS, 1), source="plays", place=PLAYS)


def planned(directory: Path) -> tuple[PlanHeader, Workspace]:
    """A plan whose first step alone has rows."""
    inputs = PlanInputs(
        start_us=0, end_us=STEPS, policy="Exact", allowed_lateness_us=0, max_misalignment_us=2,
        target_step_bytes=1, parallelism=TASKS, sources=(described().source,),
    )  # fmt: skip
    header = PlanHeader(
        plan_id=inputs.plan_id(),
        inputs=inputs,
        step_starts_us=tuple(range(STEPS)),
        step_ends_us=tuple(range(1, STEPS + 1)),
        sources=(),
        proof=Proof(greatest_disorder_us=0, greatest_misalignment_us=0),
    )
    splits = pa.Table.from_pylist([SPLIT], splits_schema())
    return header, write_plan(Workspace(str(directory)), header, [splits])


def described() -> Any:
    return v3_table(Schema(NestedField(1, "at", TimestampType())))


def test_a_step_without_rows_and_the_flush_have_no_tasks(tmp_path: Path) -> None:
    _, plan = planned(tmp_path)
    of_step = StepTasks(plan, "events").of
    (task,) = of_step(0)
    assert [split.path for split in task.splits] == ["/events.parquet"]
    assert [of_step(step) for step in range(1, STEPS + 2)] == [[]] * (STEPS + 1)


def test_how_files_are_opened_is_never_printed(tmp_path: Path) -> None:
    header, plan = planned(tmp_path)
    table = replace(described(), io_properties=(("s3.secret-access-key", "hush"),))
    tasks = StepTasks(plan, "events").of(0)
    read = reader_of_ticks("events", EVENTS, TASKS, task_reader(header, table, StructType(), None))
    announced = Announcement.of("events", 0, tasks, None)
    assert "hush" not in f"{table!r} {tasks!r} {read!r} {announced!r}"
