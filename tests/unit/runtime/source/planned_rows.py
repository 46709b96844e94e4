"""The rows that the product's reader gives for a plan, step by step and task by task."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backfill.api.spec import BackfillSpec
from backfill.planning.plan import PlanHeader, plan_directory, read_splits_of_steps
from backfill.planning.planner import make_plan, verify_files
from backfill.planning.rows.pinned_table import load_source_table
from backfill.planning.workspace import Workspace
from backfill.runtime.batch.merged_splits import merged
from backfill.runtime.source.schemas import spark_schema
from backfill.runtime.source.source_frame import task_reader
from backfill.runtime.source.split_reading import read_split
from backfill.runtime.source.step_tasks import StepTasks
from backfill.runtime.spark_versions import to_arrow_schema
from plain_values import plain_rows


@dataclass(frozen=True)
class PlannedRow:
    """A row that was read."""

    step: int
    source: str
    task: int
    values: dict[str, Any]


def rows_of_plan(header: PlanHeader, workspace: Workspace) -> Iterator[PlannedRow]:
    """All rows in the order in which they are read, source by source."""
    directory = plan_directory(workspace, header.plan_id)
    for described in header.inputs.sources:
        table = load_source_table(described)
        schema = spark_schema(table.open().schema, described.table)
        read, tasks = task_reader(header, table, schema, None), StepTasks(directory, described.name)
        for step in range(header.steps):
            for number, task in enumerate(tasks.of(step)):
                for batch in read(task, step, number, None):
                    assert batch.num_rows, "an empty batch was given"
                    for values in plain_rows(batch):
                        yield PlannedRow(step, described.name, number, values)


def planned_day(
    directory: Path, policy: str, max_misalignment: str, **source: Any
) -> tuple[PlanHeader, list[PlannedRow]]:
    """The plan of 1 March 2026 of the source ``events``, whose files were checked, and the rows
    that it reads.
    """
    spec = BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "app"},
            "window": {"start": "2026-03-01T00:00:00Z", "end": "2026-03-02T00:00:00Z"},
            "sources": [{"name": "events", "table": "lake.raw.events", **source}],
            "ordering": {"policy": policy, "allowedLateness": "1h"},
            "maxMisalignment": max_misalignment,
        }
    )
    workspace = Workspace(str(directory))
    header = make_plan(spec, workspace, parallelism=2)
    verify_files(header, workspace)
    return header, list(rows_of_plan(header, workspace))


def rows_of_run(
    header: PlanHeader, workspace: Workspace, source: str, steps: range, most_bytes: int
) -> list[dict[str, Any]]:
    """The rows of a run of steps, by splits that were merged."""
    described = next(each for each in header.inputs.sources if each.name == source)
    table = load_source_table(described)
    target = to_arrow_schema(spark_schema(table.open().schema, described.table))
    splits = read_splits_of_steps(plan_directory(workspace, header.plan_id), steps, source)
    rows: list[dict[str, Any]] = []
    for split in merged(splits, most_bytes):
        for batch in read_split(table, split, target):
            rows += plain_rows(batch)
    return rows
