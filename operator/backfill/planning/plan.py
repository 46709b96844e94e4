"""The plan: what is read, in which steps.

Its format is shared by the planner, the controller and the runtime.

A plan is two files in the workspace, under ``plans/<planId>/``:

``plan.json``
    the header (:class:`PlanHeader`): what the plan was made from, its steps, totals and proof.
    Small: the controller needs nothing else.
``splits.parquet``
    one row per split (:func:`splits_schema`), sorted by step, then source, then path: only jobs and
    the driver read it. The header has its digest, and ``plan.json`` its own, so that a damaged plan
    is never followed.

Both are written once. ``planId`` is a hash of ``inputs``, so the same tables and the same spec give
the same plan.

The operator holds the headers of all its Backfills and never opens a split: PyArrow is imported
where splits are.
"""

import hashlib
import io
import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Literal

from backfill.api.base import Checked, Model
from backfill.api.errors import PlanCorrupt, first_line
from backfill.api.quantities import format_time
from backfill.api.sealed_json import sha256
from backfill.api.spec import OrderingPolicy
from backfill.planning.step_numbers import Numbers, StepNumbers
from backfill.planning.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

TASK_BYTES_PER_SECOND = 8 * 2**20
"""Compressed Parquet that a task is assumed to read and process per second,
before there is a measured rate.
"""
FORMAT_VERSION = 4
HEADER_FILE = "plan.json"
SPLITS_FILE = "splits.parquet"
MOST_HEADER_BYTES = 256 * 2**20
"""Most bytes of a header. One with a million steps and 64 sources has fewer."""
_ROW_GROUP_SPLITS = 20_000


class SourceInput(Model):
    """A source, as it was pinned by planning."""

    name: str
    """Name of the source."""
    table: str
    """Table, as ``catalog.namespace.table``."""
    table_uuid: str
    """UUID of the table, which differs if the table is dropped and created again."""
    snapshot_id: int
    """ID of the snapshot that is read."""
    schema_id: int
    """ID of the schema that rows are read with."""
    timestamp_column: str
    """Name of the timestamp column, with dots if it is nested, and ``['key']`` if it is in a map.
    """
    timestamp_field_id: int
    """Iceberg field id of the timestamp column, or of the map that it is in."""
    timestamp_key: str | None = None
    """Its key in a map; None if it is not in a map."""
    timestamp_type: str
    """Iceberg type of the timestamps: ``timestamp``, ``timestamptz``, ``timestamp_ns``,
    ``timestamptz_ns`` or ``long``.
    """
    timestamp_unit: str | None = None
    """Unit of a ``long``: ``s``, ``ms``, ``us`` or ``ns``."""
    row_filter: str | None = None
    """Filter on rows in PyIceberg's expression syntax, which is applied again when rows are read.
    """
    region_column: str | None = None
    """Column of ``regions``, a filter in addition to ``row_filter``."""
    regions: Checked[str] | None = None
    """Values of that column that are read. Set together with ``region_column``."""
    kafka_partition_column: str | None = None
    """Column with the Kafka partition, for ``Strict`` order and duplicates."""
    kafka_offset_column: str | None = None
    """Column with the Kafka offset, for ``Strict`` order and duplicates."""
    drop_duplicates: bool | None = None
    """Whether only one of several rows with the same partition and offset is read; None for no."""
    keep_deleted: bool | None = None
    """Whether rows are read although delete files delete them; None for no."""
    watermark_property: str | None = None
    """Property of snapshots with the watermark of ingestion, if the source names one."""
    watermark_unit: str | None = None
    """Unit of that property: ``s``, ``ms``, ``us`` or ``ns``. Without one it is a time."""


class StaticInput(Model):
    """A table that is read as it is at one time, as planned."""

    table: str
    """Table, as ``catalog.namespace.table``."""
    table_uuid: str
    """UUID of the table."""
    snapshot_id: int
    """Snapshot that is read."""
    schema_id: int
    """Schema that it is read with."""


class PlanInputs(Model):
    """Everything that determines a plan.

    Its hash is the plan's id. All times are microseconds in UTC.
    """

    format_version: int = FORMAT_VERSION
    """Version of the plan's files, and of the algorithm that makes them."""
    start_us: int
    """Start of the window."""
    end_us: int
    """End of the window (exclusive). For ``window.end: Live``, right after the newest row of all
    sources.
    """
    live: Literal[True] | None = None
    """Set for ``window.end: Live``."""
    warm_up_us: int = 0
    """Length of what is read before the window."""
    drain_us: int = 0
    """Length of what is read after the window."""
    policy: OrderingPolicy
    """Ordering policy."""
    allowed_lateness_us: int
    """``allowedLateness`` of the ordering."""
    max_misalignment_us: int
    """``maxMisalignment``."""
    target_step_bytes: int
    """Most bytes of a step where data is dense."""
    parallelism: int
    """Number of tasks that a step should have work for.
    Large files are split by row groups for that.
    """
    sources: Checked[SourceInput]
    """Sources, in the order of the resource."""
    static_tables: Checked[StaticInput] = ()
    """Static tables, in the order of the resource."""
    extends: "PlanInputs | None" = None
    """What the plan was made from that this one extends: its steps are the first ones of this
    plan, and the others read rows that were committed later. None for a Backfill's first plan.
    """

    @property
    def read_start_us(self) -> int:
        """Start of what is read."""
        return self.start_us - self.warm_up_us

    @property
    def read_end_us(self) -> int:
        """The end of what is read (exclusive)."""
        return self.end_us + self.drain_us

    def ending_at(self, end_us: int) -> "PlanInputs":
        """These inputs with another end of the window."""
        return self.model_copy(update={"end_us": end_us})

    @property
    def arrival_columns(self) -> dict[str, str]:
        """The column with the time of arrival, by source."""
        return {source.name: source.timestamp_column for source in self.sources}

    def plan_id(self) -> str:
        """The plan's id: that of the first plan, since its checkpoints and branches stay in use."""
        return self.own_id() if self.extends is None else self.extends.plan_id()

    def own_id(self) -> str:
        """ID of this plan alone, which may extend others: 16 hexadecimal digits of the SHA-256 of
        the canonical JSON.
        """
        canonical = json.dumps(self.to_manifest(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


class InputCheck(Model):
    """Whether the pinned snapshot has everything that arrived in the range that is read."""

    complete: bool | None = None
    """False if rows are missing; null if that is unknown."""
    reached: bool = False
    """Whether ingestion is known to have got to the end of the range."""
    behind: bool = False
    """Whether no row shows that ingestion has got to the end of the range, so that rows may still
    come. That is no reason to refuse anything: quiet sources have none.
    """
    known_from: str = ""
    """What shows that it is complete, in words."""
    missing: Checked[str] = ()
    """What is missing, in words."""
    unknown: Checked[str] = ()
    """Why it is unknown, in words."""
    notes: Checked[str] = ()
    """What else was seen, in words, such as rows that are there twice."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Everything that is known about it, in words."""
        return (*self.missing, *self.unknown, *filter(None, (self.known_from,)), *self.notes)

    @property
    def awaited(self) -> tuple[str, ...]:
        """What is worth waiting for, in words."""
        return (*self.missing, *(self.unknown if self.behind else ()))

    def at(self, now: datetime, read_end: datetime) -> "InputCheck":
        """This check with what is certain at a moment: rows that arrive later are missing."""
        if self.reached or now >= read_end:
            return self
        still = (
            f"the input range ends at {format_time(read_end)}, which is in the future: more rows"
            " can arrive until then"
        )
        return self.model_copy(
            update={"complete": False, "known_from": "", "missing": (*self.missing, still)}
        )


class SourceTotals(Model):
    """What the plan reads of one source."""

    name: str
    """Name of the source."""
    files: int
    """Number of distinct files."""
    splits: int
    """Number of splits."""
    rows: int
    """Number of rows by the files' metadata: exact for files that are read as a whole, an estimate
    if rows are filtered or deleted.
    """
    bytes: int
    """Compressed bytes of the splits."""
    wide_files: int
    """Number of files that are cut into time slices,
    because they span more than a step and its lateness.
    """
    files_without_bounds: int = 0
    """Number of files without bounds in the manifest,
    for which the footer or the partition was used.
    """
    lower_us: int | None = None
    """Least timestamp by the bounds; null for a source without data."""
    upper_us: int | None = None
    """Greatest timestamp by the bounds; null for a source without data."""
    input: InputCheck = InputCheck(unknown=("its table was not checked",))
    """Whether its rows are all there."""
    step_rows: StepNumbers = Numbers()
    """Number of rows of each step. Of files that are cut, it is an estimate, of at least one row
    for each slice: the sum may be greater than ``rows``.
    """
    step_bytes: StepNumbers = Numbers()
    """Bytes of each step."""


class Proof(Model):
    """What was verified for the finished splits, independently of how they were made."""

    greatest_disorder_us: int
    """Most microseconds by which a row can have arrived before one of an earlier step: at most
    ``allowedLateness``, and zero for ``Exact``. For ``Unordered`` it is only reported.
    """
    greatest_misalignment_us: int
    """Most microseconds by which a row of a step that may
    be released can be ahead of the global watermark.
    """


class PlanHeader(Model):
    """The header of a plan."""

    plan_id: str
    """ID of the plan: the hash of ``inputs``, or of those of the first plan that it extends."""
    inputs: PlanInputs
    """What the plan was made from."""
    step_starts_us: StepNumbers
    """Start of each step, strictly increasing. No row of the step, of any source, is older. With
    ``Strict``, a row that arrived after one with a greater timestamp and a smaller offset is read
    together with that row, and may be older by any time, but by at most ``allowedLateness`` older
    than a row of an earlier step. So may rows of the first step by which a plan was extended.
    """
    step_ends_us: StepNumbers
    """End of each step (exclusive): at most half of ``maxMisalignment`` after its start, and not
    after the next start. A row of a file that was not cut may exceed it by up to
    ``allowedLateness``.
    """
    sources: Checked[SourceTotals]
    """Totals, in the order of ``inputs.sources``."""
    proof: Proof
    """What was verified."""
    warnings: Checked[str] = ()
    """Warnings: empty sources, rows without a timestamp, files without bounds."""
    splits_sha256: str = ""
    """Digest of ``splits.parquet``; empty until that is written."""

    @property
    def steps(self) -> int:
        """Number of steps that read rows. A source's offset goes from 0 to ``steps``, and to
        ``steps + 1`` with the flush.
        """
        return len(self.step_starts_us)

    def to_json(self) -> bytes:
        """The header in its stored form."""
        return json.dumps(self.to_manifest(), separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """Digest of the whole header, whereas :attr:`plan_id` identifies what it was made from."""
        return header_digest(self.to_json())

    @property
    def rows(self) -> int:
        """Number of rows of all sources."""
        return sum(source.rows for source in self.sources)

    def rows_of_step(self, step: int) -> int:
        """Number of rows of all sources in a step."""
        return sum(source.step_rows[step] for source in self.sources)

    @property
    def bytes(self) -> int:
        """Compressed bytes of all sources."""
        return sum(source.bytes for source in self.sources)


def header_digest(content: bytes) -> str:
    """The digest of a header in its stored form, before it is parsed: 64 hexadecimal digits."""
    return sha256(content)


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file or deletion vector that applies to the file of a split."""

    path: str
    format: str
    """``parquet`` or ``puffin``, or another format of positional deletes that PyIceberg reads."""
    equality: tuple[int, ...] = ()
    """Field ids of the columns by whose values it deletes rows; empty if it has positions."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """For ``Strict`` order: the offsets [start, end) of a Kafka partition that a split reads."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, order=True)
class PositionRange:
    """The rows of a file at positions [start, end), from zero."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Split:
    """A file, or a part of one, that a step reads for a source."""

    step: int
    """Number of the step, from zero."""
    source: str
    path: str
    format: str
    """``parquet``. Planning refuses other formats."""
    file_bytes: int
    """Size of the file."""
    row_groups: tuple[int, ...] | None
    """Row groups to read; None for all."""
    slice_start_us: int | None
    """Rows with an earlier timestamp, or without one,
    are left out; None if no row has to be checked.
    """
    slice_end_us: int | None
    """Rows with this timestamp or a later one are left out. Set together with ``slice_start_us``.
    """
    lower_us: int
    """Lower bound of the timestamps of rows that are read."""
    upper_us: int
    """Upper bound of the timestamps of rows that are read (inclusive)."""
    rows: int
    """Number of rows by metadata; see :attr:`SourceTotals.rows`."""
    bytes: int
    """Compressed bytes of the row groups."""
    spec_id: int = 0
    """ID of the partition spec of the file."""
    partition: str = "{}"
    """Identity-partition values by source field id as a JSON object, for columns that are not in
    the file (:mod:`backfill.iceberg.missing_columns`).
    """
    deletes: tuple[DeleteFile, ...] = ()
    offsets: tuple[OffsetRange, ...] = ()
    """For ``Strict`` order: rows outside of these ranges are left out."""
    file_row_groups: int | None = None
    """Number of row groups that the file must have, if ``row_groups`` is from its manifest and the
    file was not opened.
    """
    duplicates: tuple[PositionRange, ...] = ()
    """Of the rows that would be read, those that are left out, because other rows with their Kafka
    partition and offset are read.
    """
    file_rows: int | None = None
    """Number of rows that the whole file must have; None if that is unknown."""

    @property
    def leaves_rows_out(self) -> bool:
        """Whether rows of its row groups may be left out, also without a filter of its source. If
        not, ``rows`` of the splits of a step add up to what is read.
        """
        return self.slice_start_us is not None or bool(
            self.deletes or self.offsets or self.duplicates
        )


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that a plan reads, and what the plan assumes of it."""

    path: str
    bytes: int
    row_groups: int | None
    """See :attr:`Split.file_row_groups`."""
    rows: int | None
    """See :attr:`Split.file_rows`."""
    partition: str
    """See :attr:`Split.partition`."""


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
                "deletes",
                pa.list_(
                    pa.struct(
                        [
                            ("path", pa.string()),
                            ("format", pa.string()),
                            ("equality", pa.list_(pa.int32())),
                        ]
                    )
                ),
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
            pa.field(
                "duplicates", pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64())]))
            ),
            pa.field("file_rows", pa.int64()),
        ]
    )


def write_plan(
    workspace: Workspace, header: PlanHeader, splits: "Iterable[pa.RecordBatch | pa.Table]"
) -> Workspace:
    """Writes a plan below ``workspace`` and returns its directory. The header is written last, so
    that the plan is complete whenever it exists.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory = plan_directory(workspace, header.inputs.own_id())
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, splits_schema(), compression="zstd") as writer:
        for part in splits:
            table = pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part
            writer.write_table(table.cast(splits_schema()), row_group_size=_ROW_GROUP_SPLITS)
    content = buffer.getvalue()
    header = header.model_copy(update={"splits_sha256": sha256(content)})
    directory.write(SPLITS_FILE, content)
    directory.write_sealed(HEADER_FILE, header.to_json())
    return directory


def plan_directory(workspace: Workspace, own_id: str) -> Workspace:
    """Directory of a plan, by :meth:`PlanInputs.own_id`."""
    return workspace.child("plans", own_id)


def extended_plan(directory: Workspace, inputs: PlanInputs) -> Workspace:
    """Directory of the plan that the one in a directory extends."""
    assert inputs.extends is not None, "it extends one"
    return directory.beside(inputs.own_id(), inputs.extends.own_id())


def read_header(directory: Workspace) -> PlanHeader:
    """Reads the header of the plan in a directory.

    Raises:
        FileNotFoundError: there is no finished plan.
        PlanCorrupt: the file is damaged or not a header, or the plan's id is not the hash of its
            inputs.
    """
    uri = directory.child(HEADER_FILE).uri
    try:
        text = directory.read_sealed(HEADER_FILE, MOST_HEADER_BYTES)
        header = PlanHeader.model_validate_json(text)
    except ValueError as error:
        raise _unusable(uri, first_line(error)) from error
    if header.plan_id != header.inputs.plan_id():
        raise PlanCorrupt(
            f"{uri} is the header of plan {header.plan_id}, but contains the inputs of plan"
            f" {header.inputs.plan_id()}"
        )
    return header


class PlanSplits:
    """The splits of a plan: ``splits.parquet``, read and checked once, and kept in memory. That of
    a million files takes some tens of megabytes.
    """

    def __init__(self, directory: Workspace, header: PlanHeader | None = None) -> None:
        """``header`` is that of the plan, if it was read already.

        Raises:
            PlanCorrupt: the header or the file is damaged, or one of them is missing.
        """
        import pyarrow as pa

        uri = directory.child(SPLITS_FILE).uri
        try:
            header = header or read_header(directory)
            content = directory.read(SPLITS_FILE)
        except FileNotFoundError as error:
            raise _unusable(uri, "it is missing, or the plan's header is") from error
        if sha256(content) != header.splits_sha256:
            raise _unusable(uri, "its content is not what was planned")
        self._content = pa.py_buffer(content)

    def of_steps(self, steps: range, source: str) -> list[Split]:
        """The splits of a source in consecutive steps, in the order of the plan."""
        # read_table and all functions with constants load pandas, which takes long
        import pyarrow.parquet as pq

        file = pq.ParquetFile(self._content)
        table = file.read_row_groups(_row_groups(file.metadata, steps))
        first, end = (
            bisect_left(table["step"], step, key=lambda value: value.as_py())
            for step in (steps.start, steps.stop)
        )
        rows = table.slice(first, end - first).to_pylist()
        return [split_of(row) for row in rows if row["source"] == source]

    def table(self, columns: Sequence[str] | None = None, source: str | None = None) -> "pa.Table":
        """The splits of one source, or of all, as a table in the order of the plan."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        return pq.read_table(
            pa.BufferReader(self._content),
            schema=splits_schema(),
            columns=columns,
            filters=None if source is None else [("source", "=", source)],
        )


def _unusable(uri: str, why: str) -> PlanCorrupt:
    fix = "restore the file, or delete this Backfill and create it again"
    return PlanCorrupt(f"{uri} cannot be used: {why}; {fix}")


def read_splits(directory: Workspace, step: int, source: str) -> list[Split]:
    """The splits of a source in a step, in the order of the plan."""
    return read_splits_of_steps(directory, range(step, step + 1), source)


def read_splits_of_steps(directory: Workspace, steps: range, source: str) -> list[Split]:
    """The splits of a source in consecutive steps, in the order of the plan."""
    return PlanSplits(directory).of_steps(steps, source)


def _row_groups(file: "pq.FileMetaData", steps: range) -> list[int]:
    """The row groups of a plan that may have rows of some steps."""
    column = splits_schema().get_field_index("step")
    known = (file.row_group(each).column(column).statistics for each in range(file.num_row_groups))
    return [
        number
        for number, found in enumerate(known)  # None without rows
        if found is not None and found.min < steps.stop and found.max >= steps.start
    ]


def step_bounds(splits: PlanSplits, source: str) -> dict[int, tuple[int, int]]:
    """By step, for those with rows of a source: no row is older than the first time, and none newer
    than the second (inclusive); in microseconds, by arrival.
    """
    table = splits.table(["step", "lower_us", "upper_us"], source)
    bounds = table.group_by("step").aggregate([("lower_us", "min"), ("upper_us", "max")])
    return {row["step"]: (row["lower_us_min"], row["upper_us_max"]) for row in bounds.to_pylist()}


def files_of_source(splits: PlanSplits, source: str) -> list[PlannedFile]:
    """Every file of a source once, sorted by path."""
    columns = ["path", "file_bytes", "file_row_groups", "file_rows", "partition"]
    rows = splits.table(columns, source).to_pylist()
    files = {PlannedFile(*(row[column] for column in columns)) for row in rows}
    return sorted(files, key=lambda file: file.path)


def split_of(row: dict[str, object]) -> Split:
    """The split in a row of ``splits.parquet``."""
    groups, deletes, offsets = row["row_groups"], row["deletes"], row["offsets"]
    duplicates = row["duplicates"]
    fields = dict(row)
    fields["row_groups"] = tuple(groups) if isinstance(groups, Sequence) else None
    fields["deletes"] = tuple(
        DeleteFile(each["path"], each["format"], tuple(each.get("equality") or ()))
        for each in deletes or ()  # type: ignore[attr-defined]
    )
    fields["offsets"] = tuple(OffsetRange(**offset) for offset in offsets or ())  # type: ignore[attr-defined]
    fields["duplicates"] = tuple(PositionRange(**rows) for rows in duplicates or ())  # type: ignore[attr-defined]
    return Split(**fields)  # type: ignore[arg-type]
