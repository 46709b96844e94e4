"""Finds rows with the Kafka partition and offset of another row, which ingestion leaves if it
writes records at least once.

Of several such rows, the one that the plan reads first is kept. They are found by reading two
columns of every split, in the order of the plan, and left out by their positions: every reader of
the plan leaves out the same rows every time.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import field as field_of
from itertools import chain, islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import prune_columns

from backfill.api.errors import InvalidPlanInput, Problem, first_line
from backfill.api.quantities import count
from backfill.iceberg.library_errors import says_later
from backfill.planning.metadata.pinning import PinnedTable
from backfill.planning.missing_offsets import MARKERS, in_words
from backfill.planning.partition_files import Gap
from backfill.planning.plan import PlanHeader, Split, split_of, splits_schema
from backfill.planning.rows.pinned_table import OpenTable
from backfill.planning.rows.projection import Projection
from backfill.planning.rows.row_selection import column_at, kafka_field_ids, path_of
from backfill.planning.rows.split_file import open_split
from backfill.planning.source_files import Bools, Int64s

_CHUNK_BITS = 16
_CHUNK = 1 << _CHUNK_BITS
MOST_CHUNKS = 16_384
"""Most stretches of 65,536 offsets of which only some were seen; each takes 8 KiB."""
MOST_RANGES = 1_000_000
"""Most stretches of rows in files that are left out."""
FEW_GAPS = 5
"""This many gaps in the offsets of a Kafka partition may be rows that are missing. Compacted
topics, and filters of ingestion, leave more.
"""
_SPLITS_AT_ONCE = 10_000
"""Splits that are objects at a time."""
_ROWS_AT_ONCE = 1_000_000
"""Most rows of splits that are read together."""
_READERS = 16

_Ranges = dict[int, list[tuple[int, int]]]
"""By the number of a split, the positions in its file, [start, end), of rows that are left out."""


def without_duplicates(
    header: PlanHeader, splits: pa.Table, pinned: Sequence[PinnedTable]
) -> tuple[PlanHeader, pa.Table]:
    """The plan without duplicate rows of the sources that are to have none.

    Raises:
        InvalidPlanInput: a file cannot be read, there are too many duplicates, or a column has no
            offsets.
    """
    sources = list(header.sources)
    ranges: _Ranges = {}
    for number, table in enumerate(pinned):
        if table.source.drop_duplicates:
            found = _find(table, splits)
            ranges |= found.ranges
            check = sources[number].input
            notes = (*check.notes, *found.notes())
            if check.complete is not False:  # otherwise it has said more
                notes = (*notes, *found.notes_of_gaps())
            check = check.model_copy(update={"notes": notes})
            sources[number] = sources[number].model_copy(update={"input": check})
    header = header.model_copy(update={"sources": tuple(sources)})
    return header, _with_ranges(splits, ranges) if ranges else splits


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows that a split reads."""

    partitions: pa.Array
    offsets: pa.Array
    positions: Int64s
    """In the file."""


@dataclass
class _Duplicates:
    """The duplicate rows of a source."""

    read: int = 0
    """All rows."""
    rows: int = 0
    without_offset: int = 0
    """Rows without partition or offset, of which it is unknown."""
    ranges: _Ranges = field_of(default_factory=lambda: defaultdict(list))
    number_of_ranges: int = 0
    gaps: tuple[Gap, ...] = ()
    """Offsets that no row has, of partitions that lack few."""

    def add(self, split: int, positions: Int64s) -> None:
        """Adds rows of a split, at growing positions."""
        self.rows += len(positions)
        begins = np.flatnonzero(np.diff(positions, prepend=-2) != 1)
        ends = np.append(begins[1:], len(positions)) - 1
        self.number_of_ranges += len(begins)
        self.ranges[split] += zip(
            positions[begins].tolist(), (positions[ends] + 1).tolist(), strict=True
        )

    def notes(self) -> Iterator[str]:
        """What was found, in words."""
        if self.rows:
            yield (
                f"{self.rows:,} of {count(self.read, 'row')} have the same Kafka offset as another"
                " row and are left out (dropDuplicates)"
            )
        if self.without_offset:
            yield (
                f"{count(self.without_offset, 'row')} without a Kafka partition or offset are read,"
                " whether or not they are duplicates"
            )

    def notes_of_gaps(self) -> Iterator[str]:
        """What the rows lack, also of files that mix partitions. Why is unknown."""
        for lacking in in_words(self.gaps):
            yield (
                f"in the rows of the input, {lacking}; these rows are missing from the table, were"
                " deleted, or arrived outside the input range"
            )


class SeenOffsets:
    """Which offsets of which Kafka partitions were seen. Stretches of which every offset was seen,
    as in most, take next to no memory.
    """

    def __init__(self) -> None:
        self._chunks: dict[tuple[int, int], npt.NDArray[np.uint8] | None] = {}
        self.partial = 0
        """Number of stretches of which some offsets were seen."""

    def first(self, partitions: Int64s, offsets: Int64s) -> Bools:
        """For each of some rows, whether no row before it has the same partition and offset. Stops
        when more than :data:`MOST_CHUNKS` stretches have gaps, so that memory has a bound.
        """
        numbers = offsets >> _CHUNK_BITS
        order = np.lexsort((numbers, partitions))
        borders = (np.diff(partitions[order]) != 0) | (np.diff(numbers[order]) != 0)
        first = np.ones(len(offsets), np.bool_)
        for rows in np.split(order, np.flatnonzero(borders) + 1):
            if self.partial > MOST_CHUNKS:
                break
            if len(rows):
                chunk = (int(partitions[rows[0]]), int(numbers[rows[0]]))
                first[rows] = self._first_of_chunk(chunk, offsets[rows] & (_CHUNK - 1))
        return first

    def gaps(self, partition: int, start: int, most: int) -> Iterator[list[int]]:
        """Where more than ``most`` offsets of a partition in a row were not seen, from ``start`` to
        the greatest one that was: the first of them, and the next one that was seen.
        """
        for number in sorted(number for of, number in self._chunks if of == partition):
            bits = self._chunks[partition, number]
            seen = _FULL if bits is None else np.unpackbits(bits)
            borders = np.flatnonzero(np.diff(seen, prepend=0, append=0)) + (number << _CHUNK_BITS)
            firsts, ends = borders[::2], borders[1::2]
            missing = np.stack([np.append(start, ends[:-1]), firsts])
            yield from missing.T[missing[1] - missing[0] > most].tolist()
            start = int(ends[-1])

    def few_gaps(self) -> Iterator[Gap]:
        """The gaps between the offsets of each partition that has few, except markers."""
        first = dict(sorted(self._chunks, reverse=True))
        for partition, least in sorted(first.items()):
            bits = self._chunks[partition, least]
            within = 0 if bits is None else int(np.unpackbits(bits).argmax())
            gaps = self.gaps(partition, (least << _CHUNK_BITS) + within, MARKERS)
            found = list(islice(gaps, FEW_GAPS + 1))
            if len(found) <= FEW_GAPS:
                yield from (Gap(partition, *each) for each in found)

    def _first_of_chunk(self, chunk: tuple[int, int], offsets: Int64s) -> Bools:
        bits = self._chunks.get(chunk, _EMPTY)
        if bits is None:
            return np.zeros(len(offsets), np.bool_)
        seen = np.unpackbits(bits).astype(np.bool_)
        _, places = np.unique(offsets, return_index=True)
        first = np.zeros(len(offsets), np.bool_)
        first[places] = True
        first &= ~seen[offsets]
        seen[offsets] = True
        self.partial += chunk not in self._chunks
        if seen.all():
            self._chunks[chunk] = None
            self.partial -= 1
        else:
            self._chunks[chunk] = np.packbits(seen)
        return first


_EMPTY = np.zeros(_CHUNK // 8, np.uint8)
_FULL = np.ones(_CHUNK, np.uint8)


def kafka_positions(table: PinnedTable, splits: pa.Table) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Kafka partitions and offsets of the rows that a source's splits read, some at a time.

    Raises:
        InvalidPlanInput: a file cannot be read.
    """
    for _, rows in _read(_opened(table), splits, table.field):
        yield rows.partitions.cast(pa.int64()), rows.offsets.cast(pa.int64())


def _opened(table: PinnedTable) -> OpenTable:
    return OpenTable(
        source=table.source,
        schema=table.schema,
        name_mapping=table.table.name_mapping(),
        io=table.table.io,
        row_filter=bind(table.schema, table.row_filter, case_sensitive=True),
    )


def _find(table: PinnedTable, splits: pa.Table) -> _Duplicates:
    """The duplicates among the rows that a source's splits read."""
    found, seen = _Duplicates(), SeenOffsets()
    for number, rows in _read(_opened(table), splits, table.field):
        known = pc.and_(rows.partitions.is_valid(), rows.offsets.is_valid())
        first = seen.first(
            rows.partitions.filter(known).cast(pa.int64()).to_numpy(),
            rows.offsets.filter(known).cast(pa.int64()).to_numpy(),
        )
        found.read += len(rows.positions)
        found.without_offset += len(rows.positions) - len(first)
        if not first.all():
            compared = rows.positions[known.to_numpy(zero_copy_only=False)]
            found.add(number, compared[~first])
        _refuse_many(found, seen, table)
    if table.source.row_filter is None and table.source.regions is None:
        found.gaps = tuple(seen.few_gaps())
    return found


def _read(table: OpenTable, splits: pa.Table, field: str) -> Iterator[tuple[int, _Rows]]:
    """The rows of a source's splits in the order of the plan, with the number of their split.
    Small splits are read together.
    """

    def read_expected(numbered: tuple[int, Split]) -> tuple[int, list[_Rows], Iterator[_Rows]]:
        """As many rows as are estimated and fit, and those after them, which are not read yet: a
        slice may have nearly all rows of a large file.
        """
        number, split = numbered
        rows, begun, held = _rows(table, split, field), list[_Rows](), 0
        for batch in rows:
            begun.append(batch)
            held += len(batch.positions)
            if held > min(split.rows, _ROWS_AT_ONCE):
                break
        return number, begun, rows

    with ThreadPoolExecutor(_READERS) as pool:
        for some in _together(_numbered(splits, table.source.name)):
            for number, begun, rest in pool.map(read_expected, some):
                for batch in chain(begun, rest):
                    yield number, batch


def _numbered(splits: pa.Table, source: str) -> Iterator[tuple[int, Split]]:
    mine = pc.equal(splits["source"].cast(pa.string()), source)
    numbers = np.flatnonzero(mine.to_numpy())
    for some in np.split(numbers, range(_SPLITS_AT_ONCE, len(numbers), _SPLITS_AT_ONCE)):
        rows = splits.take(pa.array(some)).to_pylist()
        yield from zip(some.tolist(), map(split_of, rows), strict=True)


def _together(splits: Iterable[tuple[int, Split]]) -> Iterator[list[tuple[int, Split]]]:
    """Splits in groups of so few rows, as estimated, that these fit in memory; a larger one is on
    its own.
    """
    group: list[tuple[int, Split]] = []
    rows = 0
    for number, split in splits:
        if group and (rows + split.rows > _ROWS_AT_ONCE or len(group) == _READERS):
            yield group
            group, rows = [], 0
        group.append((number, split))
        rows += split.rows
    if group:
        yield group


def _rows(table: OpenTable, split: Split, field: str) -> Iterator[_Rows]:
    """The rows of a split."""
    ids = kafka_field_ids(table)
    columns = prune_columns(table.schema, set(ids), select_full_types=True)
    paths = [path_of(columns.as_struct(), field_id) or [] for field_id in ids]
    target = schema_to_pyarrow(columns, include_field_ids=False)
    try:
        with open_split(table, split, columns.fields) as file:
            project = Projection(columns.fields, target, file.columns, file.constants)
            needed = {each.field_id for each in columns.fields} | file.selection.field_ids
            for batch, positions in file.selected_with_positions(needed):
                rows = project(batch)
                partitions, offsets = (column_at(rows, path) for path in paths)
                yield _Rows(partitions, offsets, positions)
    except (OSError, pa.ArrowException) as error:
        message = f"{split.path} of {table.source.table} cannot be read: {first_line(error)}"
        away = says_later(error)
        problem = Problem(f"{field}.table", message, may_pass=away, unavailable=away)
        raise InvalidPlanInput(problem) from error


def _refuse_many(found: _Duplicates, seen: SeenOffsets, table: PinnedTable) -> None:
    if seen.partial > MOST_CHUNKS:
        column = table.source.kafka_offset_column
        message = (
            f"the offsets of {table.source.table} in column {column} are too far apart to find"
            f" duplicates: more than {MOST_CHUNKS:,} stretches of {_CHUNK:,} offsets have gaps"
        )
        fix = "check the column, shorten the window, or remove duplicates from the table itself"
    elif found.number_of_ranges > MOST_RANGES:
        message = (
            f"{table.source.table} has duplicates in more than {MOST_RANGES:,} places in its files"
        )
        fix = "remove duplicates from the table itself, or shorten the window"
    else:
        return
    raise InvalidPlanInput(Problem(f"{table.field}.kafka.dropDuplicates", message, fix))


def _with_ranges(splits: pa.Table, ranges: _Ranges) -> pa.Table:
    place, column = splits.schema.get_field_index("duplicates"), splits_schema().field("duplicates")
    values = [
        [{"start": start, "end": end} for start, end in ranges[number]]
        if number in ranges
        else None
        for number in range(splits.num_rows)
    ]
    return splits.set_column(place, column, pa.array(values, column.type))
