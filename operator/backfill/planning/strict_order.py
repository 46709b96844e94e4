"""``Strict`` order: the rows of a Kafka partition are
read in the order of their offsets, across steps.

The effective time of a row is the running maximum of timestamps by offset within its Kafka
partition, and a row belongs to the step of its effective time. So a step reads one range of offsets
of each partition, which starts at the least offset of any row with a timestamp in this step or a
later one. Finding these offsets takes one pass over three columns of the files, and no memory. A
second pass determines exactly what each row group contributes to each step.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.quantities import format_duration
from backfill.iceberg.file_columns import Columns, WrittenField, columns_of, part_of, path_to
from backfill.iceberg.timestamp_units import Ticks
from backfill.planning.file_bounds import unreadable_files
from backfill.planning.parquet_footers import (
    Unreadable,
    open_parquet,
    unfit_columns,
    unidentified,
)
from backfill.planning.pieces import Pieces, ReadRange, join
from backfill.planning.plan import PlanInputs, Proof, SourceInput, splits_schema
from backfill.planning.source_files import Bools, ColumnRef, Int64s, SourceFiles
from backfill.planning.splits import StepPieces, Steps

_NEVER = np.iinfo(np.int64).max

Boundaries = dict[int, Int64s]
"""By Kafka partition, the offset at which each step starts, and the end of the last one."""

PartitionsFound = dict[tuple[int, int, int, int], tuple[int, ...]]
"""By source, file, row group and step, the Kafka partitions of the rows."""


@dataclass(frozen=True)
class StrictParts:
    """What each step reads, and which offsets of each Kafka partition."""

    parts: StepPieces
    boundaries: list[Boundaries]
    """By source."""
    partitions: PartitionsFound


@dataclass(frozen=True)
class _Rows:
    """The rows of a row group that have a timestamp in the range."""

    file: int
    group: int
    bytes: int
    others: bool
    """Whether the row group also has other rows."""
    partition: Int64s
    offset: Int64s
    moment_us: Int64s


def missing_columns(sources: Sequence[SourceInput]) -> list[Problem]:
    """Columns that ``Strict`` order needs and that sources do not name."""
    named = {"partitionColumn": "kafka_partition_column", "offsetColumn": "kafka_offset_column"}
    return [
        Problem(
            f"spec.sources[{number}].kafka.{key}",
            f"ordering.policy Strict reads {source.table} in offset order, but the column with the"
            f" Kafka {key.removesuffix('Column')} is not set",
            "set the column, or choose ordering.policy Exact",
        )
        for number, source in enumerate(sources)
        for key, attribute in named.items()
        if getattr(source, attribute) is None
    ]


def place_strictly(
    sources: Sequence[SourceFiles], fields: Sequence[str], steps: Steps, span: ReadRange
) -> StrictParts:
    """Assigns the rows of all files to steps by their effective time.

    Raises:
        InvalidPlanInput: a file lacks one of the columns, cannot be read, or has rows without
            partition or offset.
    """
    boundaries: list[Boundaries] = []
    parts: list[StepPieces] = []
    partitions: PartitionsFound = {}
    for number, (files, field) in enumerate(zip(sources, fields, strict=True)):
        reader = _Reader(files, field, span)
        boundaries.append(_boundaries(reader, steps))
        parts.append(_place(reader, number, boundaries[-1], partitions))
    pieces = join([part.pieces for part in parts])
    step = np.concatenate([part.step for part in parts])
    return StrictParts(
        StepPieces(pieces, step, np.zeros(len(step), np.bool_)), boundaries, partitions
    )


def with_offsets(
    splits: pa.Table, strict: StrictParts, sources: Sequence[SourceFiles], used_steps: Int64s
) -> pa.Table:
    """The splits with their ranges of offsets. ``used_steps`` are the numbers of the steps before
    empty ones were removed.
    """
    source_of = {files.source.name: number for number, files in enumerate(sources)}
    file_of = [{path: row for row, path in enumerate(files.path.to_pylist())} for files in sources]
    ranges = []
    for split in splits.select(["step", "source", "path", "row_groups"]).to_pylist():
        source, step = source_of[split["source"]], int(used_steps[split["step"]])
        file = file_of[source][split["path"]]
        present = {
            p for group in split["row_groups"] for p in strict.partitions[source, file, group, step]
        }
        begins = strict.boundaries[source]
        ranges.append(
            [
                {"partition": p, "start": int(begins[p][step]), "end": int(begins[p][step + 1])}
                for p in sorted(present)
            ]
        )
    column = splits_schema().get_field_index("offsets")
    return splits.set_column(
        column, splits_schema().field(column), pa.array(ranges, splits_schema().field(column).type)
    )


def check_disorder(proof: Proof, inputs: PlanInputs) -> None:
    """Checks that the order of offsets is close enough to the order of arrival.

    Raises:
        InvalidPlanInput: it is not; with the numbers.
    """
    if proof.greatest_disorder_us <= inputs.allowed_lateness_us:
        return
    disorder, allowed = (
        format_duration(timedelta(milliseconds=math.ceil(us / 1_000)))
        for us in (proof.greatest_disorder_us, inputs.allowed_lateness_us)
    )
    message = (
        f"reading each Kafka partition in offset order puts rows up to {disorder} out of order,"
        f" but allowedLateness is only {allowed}"
    )
    fixes = "increase allowedLateness", "choose ordering.policy WithinLateness"
    if any(source.drop_duplicates for source in inputs.sources):
        # which copies to leave out is known only once the order of all rows is
        message += "; copies that dropDuplicates leaves out count as well"
        fix = f"{', '.join(fixes)}, or remove late copies from the table"
    else:
        fix = ", or ".join(fixes)
    raise InvalidPlanInput(Problem("spec.ordering.allowedLateness", message, fix))


class _Reader:
    """Reads timestamp, Kafka partition and offset of a source's files."""

    def __init__(self, files: SourceFiles, field: str, span: ReadRange) -> None:
        self._files = files
        self._field = field
        self._span = span
        self._columns: tuple[ColumnRef, ...] = (files.column, *files.kafka_columns)

    def rows(self) -> Iterator[_Rows]:
        """The rows of the range, one row group after the other."""
        for number in range(len(self._files)):
            path = self._files.path[number].as_py()
            try:
                with self._files.open(path) as stream:
                    yield from self._rows_of_file(number, path, open_parquet(stream))
            except (OSError, pa.ArrowException) as error:
                unreadable = Unreadable.because(path, error)
                raise unreadable_files(self._files, self._field, [unreadable]) from error

    def _rows_of_file(self, number: int, path: str, file: pq.ParquetFile) -> Iterator[_Rows]:
        files, schema = self._files, file.schema_arrow
        columns = columns_of(schema, files.mapping)
        found = [path_to(columns, column.field_id) for column in self._columns]
        key = files.column.key
        problem = unidentified(path, schema, mapped=files.mapping is not None) or unfit_columns(
            path, schema, self._columns, found
        )
        if problem:
            raise unreadable_files(files, self._field, [problem])
        held = [
            to or _struct_of(columns, column)
            for to, column in zip(found, self._columns, strict=True)
        ]
        without = [
            files.value_without(number, column) if to is None else None
            for to, column in zip(found, self._columns, strict=True)
        ]
        names = [".".join(part.name for part in each) for each in held if each] or schema.names[:1]
        for group in range(file.num_row_groups):
            metadata = file.metadata.row_group(group)
            table = file.read_row_group(group, columns=names)
            moments, partitions, offsets = (
                _values(table, *each) for each in zip(found, held, without, strict=True)
            )
            if key is not None and found[0]:
                moments = part_of(moments, [key])
            ticks = (
                Ticks(moments.type.unit)
                if pa.types.is_timestamp(moments.type)
                else self._files.column.ticks
            )
            inside, values = self._inside(moments, ticks)
            partitions, offsets = (
                partitions.filter(pa.array(inside)),
                offsets.filter(pa.array(inside)),
            )
            if partitions.null_count or offsets.null_count:
                raise self._without_order(path)
            yield _Rows(
                file=number,
                group=group,
                bytes=sum(
                    metadata.column(i).total_compressed_size for i in range(metadata.num_columns)
                ),
                others=not bool(inside.all()),
                partition=partitions.cast(pa.int64()).to_numpy(),
                offset=offsets.cast(pa.int64()).to_numpy(),
                moment_us=ticks.floor_all_us(values),
            )

    def _inside(self, moments: pa.Array, ticks: Ticks) -> tuple[Bools, Int64s]:
        """Which rows are in the range, and their values."""
        values = moments.cast(pa.int64()).fill_null(0).to_numpy()
        low, high = ticks.first_at(self._span.start_us), ticks.first_at(self._span.end_us)
        inside = (
            (values >= low) & (values < high) & moments.is_valid().to_numpy(zero_copy_only=False)
        )
        return inside, values[inside]

    def _without_order(self, path: str) -> InvalidPlanInput:
        return InvalidPlanInput(
            Problem(
                f"{self._field}.kafka",
                f"{path} of {self._files.source.table} has rows in the range without a Kafka"
                " partition or offset",
                "choose ordering.policy Exact, or fill in these columns",
            )
        )


def _boundaries(reader: _Reader, steps: Steps) -> Boundaries:
    count = len(steps.starts)
    least: dict[int, Int64s] = defaultdict(lambda: np.full(count + 1, _NEVER))
    end: dict[int, int] = defaultdict(int)
    for rows in reader.rows():
        step = steps.of(rows.moment_us)
        for partition in np.unique(rows.partition).tolist():
            mine = rows.partition == partition
            np.minimum.at(least[partition], step[mine], rows.offset[mine])
            end[partition] = max(end[partition], int(rows.offset[mine].max()) + 1)
    for partition, offsets in least.items():
        offsets[count] = end[partition]
        least[partition] = np.minimum.accumulate(offsets[::-1])[::-1]
    return dict(least)


def _place(
    reader: _Reader, source: int, boundaries: Boundaries, partitions: PartitionsFound
) -> StepPieces:
    found: list[tuple[int, ...]] = []
    for rows in reader.rows():
        step = _steps_of(rows, boundaries)
        for number in np.unique(step).tolist():
            chosen = step == number
            moments = rows.moment_us[chosen]
            bounds = (int(moments.min()), int(moments.max()))
            found.append(
                (
                    rows.file,
                    rows.group,
                    *bounds,
                    int(chosen.sum()),
                    rows.bytes,
                    int(rows.others),
                    0,
                    number,
                )
            )
            partitions[source, rows.file, rows.group, number] = tuple(
                np.unique(rows.partition[chosen]).tolist()
            )
    columns = np.array(found, np.int64).reshape(-1, 9).T
    pieces = Pieces(np.full(columns.shape[1], source, np.int64), *columns[:8])
    return StepPieces(pieces, columns[8], np.zeros(columns.shape[1], np.bool_))


def _steps_of(rows: _Rows, boundaries: Boundaries) -> Int64s:
    """The step of each row, by its offset."""
    step = np.empty(len(rows.offset), np.int64)
    for partition in np.unique(rows.partition).tolist():
        mine = rows.partition == partition
        step[mine] = np.searchsorted(boundaries[partition][:-1], rows.offset[mine], "right") - 1
    return step


def _struct_of(columns: Columns, column: ColumnRef) -> tuple[WrittenField, ...] | None:
    """The path to the struct that would hold a column which a file lacks: empty for a column at the
    top level, None if the file lacks the struct as well.
    """
    return path_to(columns, column.parents[-1]) if column.parents else ()


def _values(
    table: pa.Table,
    found: tuple[WrittenField, ...] | None,
    held: tuple[WrittenField, ...] | None,
    without: int | None,
) -> pa.Array:
    """A column of a row group. In a file that lacks the column, it is the value of all rows, except
    where the struct that holds it is null.
    """
    if found is not None:
        return _column(table, found)
    if held is None:
        return pa.nulls(table.num_rows, pa.int64())
    values = pa.repeat(pa.scalar(without, pa.int64()), table.num_rows)
    return pc.if_else(_column(table, held).is_valid(), values, None) if held else values


def _column(table: pa.Table, path: tuple[WrittenField, ...]) -> pa.Array:
    column: Any = table[path[0].name].combine_chunks()
    return part_of(column, [part.name for part in path[1:]])
