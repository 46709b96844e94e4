"""The plan: what is read, in which steps. Its format is shared by the planner, the controller and
the runtime.

A plan is two files in the workspace, under ``plans/<planId>/``:

``plan.json``
    the header (:class:`PlanHeader`): what the plan was made from, its steps, totals and proof.
    Small: the controller needs nothing else.
``splits.parquet``
    one row per split (:func:`splits_schema`), sorted by step, then source, then path: only the
    driver reads it.

Both are written once. ``planId`` is a hash of ``inputs``, so the same tables and the same wishes
give the same plan.

The operator holds the headers of all its Backfills and never opens a split: PyArrow is imported
where splits are.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from backfill.api.base import Checked, Model
from backfill.api.errors import PlanCorrupt
from backfill.api.spec import OrderingPolicy
from backfill.planning.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa

TASK_BYTES_PER_SECOND = 8 * 2**20
"""What a task is assumed to read and process of compressed Parquet, until there is a rate
observed.
"""
FORMAT_VERSION = 2
HEADER_FILE = "plan.json"
SPLITS_FILE = "splits.parquet"
MOST_HEADER_BYTES = 256 * 2**20
"""A longer file is no header: one of a million steps and 64 sources has fewer."""
_ROW_GROUP_SPLITS = 20_000


class SourceInput(Model):
    """One source as it was pinned when planned."""

    name: str
    """The source."""
    table: str
    """``catalog.namespace.table``."""
    table_uuid: str
    """The table's UUID: a table dropped and made again is another one."""
    snapshot_id: int
    """The snapshot that is read."""
    schema_id: int
    """The schema rows are projected to: the snapshot's."""
    timestamp_column: str
    """The arrival column, nested ones with dots."""
    timestamp_field_id: int
    """Its Iceberg field id."""
    timestamp_type: str
    """Its Iceberg type: ``timestamp``, ``timestamptz``, ``timestamp_ns``, ``timestamptz_ns`` or
    ``long``.
    """
    timestamp_unit: str | None = None
    """``s``, ``ms``, ``us`` or ``ns`` of a ``long``."""
    row_filter: str | None = None
    """The filter on rows in PyIceberg's expression syntax; rows are filtered again when read."""
    region_column: str | None = None
    """The column of the short form of a filter, which holds together with ``row_filter``."""
    regions: Checked[str] | None = None
    """Its values that are read; set together with ``region_column``."""
    kafka_partition_column: str | None = None
    """For ``Strict`` order."""
    kafka_offset_column: str | None = None
    """For ``Strict`` order."""


class PlanInputs(Model):
    """Everything that decides what a plan looks like; its hash is the plan's id. All times are
    microseconds UTC.
    """

    format_version: int = FORMAT_VERSION
    """Of the plan files and of the algorithm that fills them."""
    start_us: int
    """Start of the window."""
    end_us: int
    """End of the window (exclusive)."""
    warm_up_us: int = 0
    """Read before the window."""
    drain_us: int = 0
    """Read after the window."""
    policy: OrderingPolicy
    """The ordering policy."""
    allowed_lateness_us: int
    """Ordering's ``allowedLateness``."""
    max_misalignment_us: int
    """``maxMisalignment``."""
    target_step_bytes: int
    """The most bytes in a step where data is dense."""
    parallelism: int
    """Tasks a step should have work for; big files are split by row groups to reach it."""
    sources: Checked[SourceInput]
    """The sources, in the order of the resource."""

    @property
    def read_start_us(self) -> int:
        """The first moment that is read."""
        return self.start_us - self.warm_up_us

    @property
    def read_end_us(self) -> int:
        """The end of what is read (exclusive)."""
        return self.end_us + self.drain_us

    def plan_id(self) -> str:
        """The content address: 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        canonical = json.dumps(self.to_manifest(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


class SourceTotals(Model):
    """What the plan reads of one source."""

    name: str
    """The source."""
    files: int
    """Distinct files."""
    splits: int
    """Splits."""
    rows: int
    """Rows, by the files' metadata: exact for files read whole, an estimate where rows are filtered
    or deleted.
    """
    bytes: int
    """Compressed bytes of the splits."""
    wide_files: int
    """Files cut into time slices because they span more than a step and its lateness."""
    files_without_bounds: int = 0
    """Files whose manifest entry has no bounds, so that the footer or the partition was used."""
    lower_us: int | None = None
    """The least timestamp read, by the bounds; null for a source without data."""
    upper_us: int | None = None
    """The greatest timestamp read, by the bounds."""
    step_rows: Checked[int] = ()
    """Rows of each step."""
    step_bytes: Checked[int] = ()
    """Bytes of each step."""


class Proof(Model):
    """What was verified on the finished splits, independently of how they were made."""

    greatest_disorder_us: int
    """The most by which a row can have arrived before one of an earlier step: at most
    ``allowedLateness`` (zero for Exact; for Unordered it is only reported).
    """
    greatest_misalignment_us: int
    """The most by which a row of a step that may be released can be ahead of the global
    watermark.
    """


class PlanHeader(Model):
    """The header of a plan."""

    plan_id: str
    """The content address of ``inputs``."""
    inputs: PlanInputs
    """What the plan was made from."""
    step_starts_us: Checked[int]
    """Start of each step: no row of the step, of whatever source, is older. Strictly increasing.
    Under ``Strict`` a row that arrived after one of a greater timestamp and a smaller offset is
    read with that one, and may be older by any length of time, but not by more than
    ``allowedLateness`` than a row of an earlier step.
    """
    step_ends_us: Checked[int]
    """End of each step (exclusive): at most half of ``maxMisalignment`` after its start, and not
    after the next start. A row of a file that was not cut may be up to ``allowedLateness`` past
    it.
    """
    sources: Checked[SourceTotals]
    """Totals, in the order of ``inputs.sources``."""
    proof: Proof
    """What was verified."""
    warnings: Checked[str] = ()
    """Things a person should know: empty sources, rows without a timestamp, files without
    bounds.
    """

    @property
    def steps(self) -> int:
        """Number of steps that read rows. A source's offset runs from 0 to ``steps``, and to
        ``steps + 1`` by the flush.
        """
        return len(self.step_starts_us)

    def to_json(self) -> bytes:
        """As it is kept in the workspace and on a cluster."""
        return json.dumps(self.to_manifest(), separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """Identifies the whole header, as :attr:`plan_id` does what it was made from."""
        return header_digest(self.to_json())

    @property
    def rows(self) -> int:
        """Rows of all sources."""
        return sum(source.rows for source in self.sources)

    @property
    def bytes(self) -> int:
        """Bytes of all sources."""
        return sum(source.bytes for source in self.sources)


def header_digest(content: bytes) -> str:
    """The digest of a header as it is kept, before it is parsed: 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A positional delete file or deletion vector that applies to a split's file."""

    path: str
    format: str
    """``parquet`` or ``puffin`` (or another format of positional deletes PyIceberg reads)."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """For ``Strict`` order: the offsets [start, end) of one Kafka partition that a split reads."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Split:
    """A file, or a part of one, that one step reads for one source."""

    step: int
    """Counts from zero."""
    source: str
    path: str
    format: str
    """``parquet``; other file formats are refused when planned."""
    file_bytes: int
    """Length of the file."""
    row_groups: tuple[int, ...] | None
    """The row groups to read; None means all of them."""
    slice_start_us: int | None
    """Rows with a timestamp before it are left out, and rows without one; None means no row has to
    be looked at.
    """
    slice_end_us: int | None
    """Rows from this timestamp on are left out. Set together with ``slice_start_us``."""
    lower_us: int
    """No row that is read is older."""
    upper_us: int
    """No row that is read is newer (inclusive)."""
    rows: int
    """Rows by metadata; see :attr:`SourceTotals.rows`."""
    bytes: int
    """Compressed bytes of the row groups."""
    spec_id: int = 0
    """The partition spec the file was written with."""
    partition: str = "{}"
    """JSON object: identity-partition values by source field id, for columns that are not in the
    file (:mod:`backfill.iceberg.values`).
    """
    deletes: tuple[DeleteFile, ...] = ()
    offsets: tuple[OffsetRange, ...] = ()
    """For ``Strict`` order only: rows outside of these ranges are left out."""
    file_row_groups: int | None = None
    """How many row groups the file has to have: ``row_groups`` were told by its manifest, without
    opening it.
    """


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that a plan reads, with what is taken for granted of it."""

    path: str
    bytes: int
    row_groups: int | None
    """As :attr:`Split.file_row_groups`."""
    partition: str
    """As :attr:`Split.partition`."""


@cache
def splits_schema() -> "pa.Schema":
    """The columns of ``splits.parquet``: the fields of :class:`Split`."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("step", pa.int32(), nullable=False),
            pa.field("source", pa.dictionary(pa.int16(), pa.string()), nullable=False),
            pa.field("path", pa.string(), nullable=False),
            pa.field("format", pa.dictionary(pa.int16(), pa.string()), nullable=False),
            pa.field("file_bytes", pa.int64(), nullable=False),
            pa.field("row_groups", pa.list_(pa.int32())),
            pa.field("slice_start_us", pa.int64()),
            pa.field("slice_end_us", pa.int64()),
            pa.field("lower_us", pa.int64(), nullable=False),
            pa.field("upper_us", pa.int64(), nullable=False),
            pa.field("rows", pa.int64(), nullable=False),
            pa.field("bytes", pa.int64(), nullable=False),
            pa.field("spec_id", pa.int32(), nullable=False),
            pa.field("partition", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field(
                "deletes", pa.list_(pa.struct([("path", pa.string()), ("format", pa.string())]))
            ),
            pa.field(
                "offsets",
                pa.list_(
                    pa.struct(
                        [("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64())]
                    )
                ),
            ),
            pa.field("file_row_groups", pa.int32()),
        ]
    )


def write_plan(
    workspace: Workspace, header: PlanHeader, splits: "Iterable[pa.RecordBatch | pa.Table]"
) -> Workspace:
    """Writes a plan below ``workspace`` and returns its directory. The header comes last: where it
    is, all is there.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory = plan_directory(workspace, header.plan_id)
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, splits_schema(), compression="zstd") as writer:
        for part in splits:
            table = pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part
            writer.write_table(table.cast(splits_schema()), row_group_size=_ROW_GROUP_SPLITS)
    directory.write(SPLITS_FILE, buffer.getvalue())
    directory.write(HEADER_FILE, header.to_json())
    return directory


def plan_directory(workspace: Workspace, plan_id: str) -> Workspace:
    """Where a plan is kept."""
    return workspace.child("plans", plan_id)


def read_header(directory: Workspace) -> PlanHeader:
    """The header of the plan in a directory.

    Raises:
        FileNotFoundError: there is no finished plan.
        ValueError: it is no header.
        PlanCorrupt: the header's id is not the hash of its inputs.
    """
    header = PlanHeader.model_validate_json(directory.read(HEADER_FILE, MOST_HEADER_BYTES))
    if header.plan_id != header.inputs.plan_id():
        raise PlanCorrupt(
            f"{directory.child(HEADER_FILE).uri} says plan {header.plan_id}, its inputs give"
            f" {header.inputs.plan_id()}"
        )
    return header


def read_splits(directory: Workspace, step: int, source: str) -> list[Split]:
    """The splits of one source in one step, in the plan's order. Reads only the row groups that can
    hold the step.
    """
    return read_splits_of_steps(directory, range(step, step + 1), source)


def read_splits_of_steps(directory: Workspace, steps: range, source: str) -> list[Split]:
    """The same of a run of consecutive steps."""
    import pyarrow.parquet as pq

    wanted = [("step", ">=", steps.start), ("step", "<", steps.stop), ("source", "=", source)]
    with directory.open_input(SPLITS_FILE) as file:
        table = pq.read_table(file, schema=splits_schema(), filters=wanted)
    return [_split(row) for row in table.to_pylist()]


def read_files(directory: Workspace, source: str) -> list[PlannedFile]:
    """Every file of one source once, sorted by path."""
    import pyarrow.parquet as pq

    with directory.open_input(SPLITS_FILE) as file:
        columns = ["path", "file_bytes", "file_row_groups", "partition"]
        table = pq.read_table(
            file, schema=splits_schema(), columns=columns, filters=[("source", "=", source)]
        )
    files = {
        PlannedFile(row["path"], row["file_bytes"], row["file_row_groups"], row["partition"])
        for row in table.to_pylist()
    }
    return sorted(files, key=lambda file: file.path)


def _split(row: dict[str, object]) -> Split:
    groups, deletes, offsets = row["row_groups"], row["deletes"], row["offsets"]
    fields = dict(row)
    fields["row_groups"] = tuple(groups) if isinstance(groups, Sequence) else None
    fields["deletes"] = tuple(DeleteFile(**delete) for delete in deletes or ())  # type: ignore[attr-defined]
    fields["offsets"] = tuple(OffsetRange(**offset) for offset in offsets or ())  # type: ignore[attr-defined]
    return Split(**fields)  # type: ignore[arg-type]
