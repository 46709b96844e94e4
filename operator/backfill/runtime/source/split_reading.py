"""Reads splits, the rows of a source in a step, from the Parquet files of an Iceberg table."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill.api.errors import BackfillError, InvalidPlanInput, Problem, first_line
from backfill.planning.plan import SourceInput, Split, read_header, read_splits
from backfill.planning.rows.pinned_table import OpenTable, SourceTable, load_source_table
from backfill.planning.rows.projection import Projection
from backfill.planning.rows.row_selection import column_at, kafka_field_ids, path_of
from backfill.planning.rows.split_file import batch_rows, open_split
from backfill.planning.workspace import Workspace


def read_split(
    table: SourceTable, split: Split, target: pa.Schema, columns: frozenset[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a split in the order of the file, in batches with the Arrow types of ``target``.

    Top-level columns that are not in ``columns`` are null; with None, all are read.

    Raises:
        InvalidPlanInput: the file no longer exists, is damaged, or does not fit the plan or the
            table.
        BackfillError: the file cannot be accessed.
    """
    try:
        yield from _read(table, split, target, columns)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        message = f"{split.path} of {table.source.table} cannot be read: {first_line(error)}"
        raise InvalidPlanInput(
            Problem("spec.sources", message, "restore the file, then retry")
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise BackfillError(
            f"{split.path} of {table.source.table} cannot be read: {error}"
        ) from error


def _read(
    table: SourceTable, split: Split, target: pa.Schema, columns: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    opened = table.open()
    wanted = [field for field in opened.schema.fields if columns is None or field.name in columns]
    with open_split(opened, split, wanted) as file:
        project = Projection(wanted, target, file.columns, file.constants)
        needed = {field.field_id for field in wanted} | file.selection.field_ids
        for batch in file.selected_batches(needed):
            yield project(batch)


def read_in_offset_order(
    table: SourceTable,
    splits: Iterable[Split],
    target: pa.Schema,
    columns: frozenset[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of several splits as :func:`read_split` returns them, sorted by Kafka partition and
    offset. All are in memory at once.
    """
    opened = table.open()
    struct = opened.schema.as_struct()
    paths = [path_of(struct, field_id) for field_id in kafka_field_ids(opened)]
    if columns is not None:
        columns |= {path[0] for path in paths if path}
    rows = pa.Table.from_batches(
        (batch for split in splits for batch in read_split(table, split, target, columns)), target
    )
    whole = rows.combine_chunks().to_batches()
    if whole:
        yield from in_order(
            whole, [path for path in paths if path], batch_rows(rows.num_rows, rows.nbytes)
        )


def in_order(
    batches: Sequence[pa.RecordBatch], paths: Sequence[list[str]], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """All rows, sorted by the columns at ``paths``, in batches of at most ``batch_rows``. There is
    at least one batch. They are not joined first, because a string column of more than 2 GiB does
    not fit into one array.
    """
    keys = {
        str(number): pa.chunked_array([column_at(batch, path) for batch in batches])
        for number, path in enumerate(paths)
    }
    order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])
    for start in range(0, len(order), batch_rows):
        yield _rows_at(batches, order.slice(start, batch_rows))


def _rows_at(batches: Sequence[pa.RecordBatch], places: pa.Array) -> pa.RecordBatch:
    """Rows by their positions in all batches together. Only the selected rows are joined."""
    if len(batches) == 1:
        return batches[0].take(places)
    place = places.to_numpy().astype(np.int64)
    first = np.cumsum([0, *(batch.num_rows for batch in batches)])
    number = np.searchsorted(first, place, "right") - 1
    taken = [batch.take(pa.array(place[number == n] - first[n])) for n, batch in enumerate(batches)]
    position = np.empty(len(place), np.int64)
    position[np.argsort(number, kind="stable")] = np.arange(len(place))
    return pa.concat_batches(taken).take(pa.array(position))


def count_rows(plan: Workspace, source: str, step: int) -> int:
    """Number of rows of a source in a step, counted in the files of which rows are left out."""
    described = next(each for each in read_header(plan).inputs.sources if each.name == source)
    known, uncounted = counted(described, read_splits(plan, step, source))
    table = load_source_table(described).open() if uncounted else None
    return known + sum(_count_split(table, split) for split in uncounted if table is not None)


def counted(source: SourceInput, splits: Iterable[Split]) -> tuple[int, list[Split]]:
    """The number of rows of those splits of a step that read all rows of their row groups, and the
    other splits, whose rows have to be counted in their files.
    """
    filtered = source.row_filter is not None or source.region_column is not None
    known, uncounted = 0, []
    for split in splits:
        if filtered or split.leaves_rows_out:
            uncounted.append(split)
        else:
            known += split.rows
    return known, uncounted


def _count_split(table: OpenTable, split: Split) -> int:
    with open_split(table, split, ()) as file:
        return sum(int(batch.num_rows) for batch in file.selected_batches(file.selection.field_ids))
