"""The rows that the product's reader gives for a plan, step by step and task by task."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema

from backfill.planning.plan import PlanHeader, plan_directory, read_splits_of_steps
from backfill.planning.rows.pinned_table import load_source_table
from backfill.planning.workspace import Workspace
from backfill.runtime.batch.merged_splits import merged
from backfill.runtime.source.data_source import StepPartition, StepReader
from backfill.runtime.source.schemas import spark_schema
from backfill.runtime.source.split_reading import read_split
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
        assert to_arrow_schema(schema, timezone="UTC")
        reader = StepReader(table, directory, workspace.child("scratch").uri, schema, None)
        for step in range(header.steps):
            start, end = ({"source": described.name, "step": number} for number in (step, step + 1))
            for task, partition in enumerate(reader.partitions(start, end)):
                assert isinstance(partition, StepPartition)
                for batch in reader.read(partition):
                    assert batch.num_rows, "an empty batch was given"
                    for values in plain_rows(batch):
                        yield PlannedRow(step, described.name, task, values)


def rows_of_run(
    header: PlanHeader, workspace: Workspace, source: str, steps: range, most_bytes: int
) -> list[dict[str, Any]]:
    """The rows of a run of steps, by splits that were merged."""
    described = next(each for each in header.inputs.sources if each.name == source)
    table = load_source_table(described)
    target = to_arrow_schema(spark_schema(table.open().schema, described.table), timezone="UTC")
    splits = read_splits_of_steps(plan_directory(workspace, header.plan_id), steps, source)
    rows: list[dict[str, Any]] = []
    for split in merged(splits, most_bytes):
        for batch in read_split(table, split, target):
            rows += plain_rows(batch)
    return rows
