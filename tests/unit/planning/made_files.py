"""Sources made of rows in memory, and the rows a plan's splits would read of them."""

import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, TimestamptzType

from backfill.api.spec import OrderingPolicy
from backfill.planning.plan import InputCheck, PlanInputs, SourceInput
from backfill.planning.source_files import PartitionValues, SourceFiles, timestamp_column
from backfill.planning.source_metadata import ReadSources

Groups = Sequence[Sequence[int | None]]
"""A file: the timestamps of the rows of each of its row groups, in microseconds."""


def source_input(name: str) -> SourceInput:
    return SourceInput(
        name=name,
        table=f"lake.raw.{name}",
        table_uuid="0",
        snapshot_id=1,
        schema_id=0,
        timestamp_column="ts",
        timestamp_field_id=1,
        timestamp_type="timestamptz",
    )


def parquet(groups: Groups) -> bytes:
    """A file with these row groups; rows are numbered in column ``id``."""
    buffer, first = io.BytesIO(), 0
    schema = pa.schema(
        [
            pa.field("ts", pa.timestamp("us", "UTC"), metadata={"PARQUET:field_id": "1"}),
            ("id", pa.int64()),
        ]
    )
    with pq.ParquetWriter(buffer, schema) as writer:
        for group in groups:
            ids = pa.array(range(first, first + len(group)), pa.int64())
            writer.write_table(
                pa.table([pa.array(group, schema.field("ts").type), ids], schema=schema)
            )
            first += len(group)
    return buffer.getvalue()


def group_starts(data: bytes) -> list[int]:
    """Where row groups begin, as writers put it into manifests."""
    metadata = pq.read_metadata(io.BytesIO(data))
    columns = [metadata.row_group(number).column(0) for number in range(metadata.num_row_groups)]
    return [column.dictionary_page_offset or column.data_page_offset for column in columns]


def made_source(
    name: str, files: Sequence[Groups], *, known_groups: bool = True
) -> tuple[SourceFiles, dict[str, bytes]]:
    """The files of a source as a manifest with full metrics would describe them, and their
    content.
    """
    content = {
        f"{name}/{number:03d}.parquet": parquet(groups) for number, groups in enumerate(files)
    }
    rows = [[moment for group in groups for moment in group] for groups in files]
    present = [[moment for moment in moments if moment is not None] for moments in rows]
    starts = [group_starts(data) if known_groups else None for data in content.values()]
    source = source_input(name)
    count = len(files)
    made = SourceFiles(
        source=source,
        column=timestamp_column(source, Schema(NestedField(1, "ts", TimestamptzType()))),
        mapping=None,
        kafka_columns=(),
        open=lambda path: io.BytesIO(content[path]),
        path=pa.array(list(content), pa.string()),
        file_bytes=np.array([len(data) for data in content.values()], np.int64),
        rows=np.array([len(moments) for moments in rows], np.int64),
        lower_us=np.array([min(moments) for moments in present], np.int64),
        upper_us=np.array([max(moments) for moments in present], np.int64),
        bounded=np.ones(count, np.bool_),
        nulls=np.array([len(a) - len(b) for a, b in zip(rows, present, strict=True)], np.int64),
        spec_id=np.zeros(count, np.int32),
        partition=np.zeros(count, np.int32),
        partitions=[PartitionValues("{}", None, {})],
        group_starts=pa.array(starts, pa.list_(pa.int64())),
        deletes=np.zeros(count, np.int32),
        delete_sets=[()],
    )
    return made, content


def source_files(name: str, files: Sequence[tuple[int, int, int]]) -> SourceFiles:
    """The files of a source by metadata alone: least and greatest timestamp, and rows."""
    made, _ = made_source(name, [])
    lower, upper, rows = np.array(files, np.int64).reshape(-1, 3).T
    made.lower_us, made.upper_us, made.rows = lower, upper, rows
    made.path = pa.array([f"{name}/{number}" for number in range(len(files))], pa.string())
    return made


def made_inputs(
    start_us: int, end_us: int, sources: Sequence[SourceFiles], **wishes: Any
) -> PlanInputs:
    defaults = {
        "policy": OrderingPolicy.WITHIN_LATENESS,
        "allowed_lateness_us": 10,
        "max_misalignment_us": 100,
        "target_step_bytes": 10**9,
        "parallelism": 2,
    }
    return PlanInputs(
        start_us=start_us,
        end_us=end_us,
        sources=tuple(files.source for files in sources),
        **{**defaults, **wishes},
    )


def read_sources(sources: Sequence[SourceFiles]) -> ReadSources:
    fields = [f"spec.sources[{number}]" for number in range(len(sources))]
    none = [0] * len(sources)
    return ReadSources(list(sources), fields, none, [], [InputCheck()] * len(sources), none)


def rows_of(splits: pa.Table, content: dict[str, bytes]) -> list[tuple[int, str, int, int]]:
    """What a reader of the splits reads, by Parquet alone: step, path, row id, timestamp."""
    read = []
    groups = {path: _row_groups(data) for path, data in content.items()}
    for split in splits.to_pylist():
        known = groups[split["path"]]
        chosen = range(len(known)) if split["row_groups"] is None else split["row_groups"]
        for moment, row in (pair for group in chosen for pair in known[group]):
            if split["slice_start_us"] is None or (
                moment is not None and split["slice_start_us"] <= moment < split["slice_end_us"]
            ):
                assert moment is not None, "a row without a timestamp would be read"
                assert split["lower_us"] <= moment <= split["upper_us"]
                read.append((split["step"], split["path"], row, moment))
    return read


def _row_groups(data: bytes) -> list[list[tuple[int | None, int]]]:
    file = pq.ParquetFile(io.BytesIO(data))
    tables = [file.read_row_group(number) for number in range(file.num_row_groups)]
    return [
        list(zip(t["ts"].cast(pa.int64()).to_pylist(), t["id"].to_pylist(), strict=True))
        for t in tables
    ]


def rows_wanted(
    sources: Sequence[Sequence[Groups]], names: Sequence[str], start_us: int, end_us: int
) -> Counter[tuple[str, int]]:
    """The rows with a timestamp in [start, end): path and row id."""
    wanted: Counter[tuple[str, int]] = Counter()
    for name, files in zip(names, sources, strict=True):
        for number, groups in enumerate(files):
            rows = [moment for group in groups for moment in group]
            wanted.update(
                (f"{name}/{number:03d}.parquet", row)
                for row, moment in enumerate(rows)
                if moment is not None and start_us <= moment < end_us
            )
    return wanted
