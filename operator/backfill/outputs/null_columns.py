"""Columns of a result that are null in every row, although production's rows have values.

A program that decodes records in functions of its own cannot be compared with the columns of a
source when its query starts. What it does not find becomes null, in every row.
"""

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.field_types import bare
from backfill.api.output import Output
from backfill.api.quantities import count
from backfill.api.spec import Window
from backfill.api.status import MOST_NULL_COLUMNS
from backfill.iceberg.open_tables import Catalogs
from backfill.iceberg.table_scan import scan_files
from backfill.outputs.result_names import Result
from backfill.outputs.staging import StagedBatch, read_staged, staged_files
from backfill.outputs.window_rows import WindowRows, window_rows

_ENOUGH_ROWS = 100
"""Staged rows after which the query has shown how it decodes."""
_NEARLY_ALL = 0.9
"""Share of production's rows with a value, from which the first rows of a result must have one."""
_CHANCE = 1e-6
"""Chance of a false alarm, if each row of the result had a value as often as those of production.
"""
_FEWEST_ROWS = 20
"""Rows that are looked at if production has none."""
_MOST_CHARACTERS = 255
"""Characters of a name that are kept."""
_MOST_FILES = 1_000
"""Newest files of production that are looked at if it has none from the result's time."""


@dataclass(frozen=True, slots=True)
class NullColumn:
    """A column, or a field of one, that is null in every row of a result."""

    name: str
    """Its name, with dots."""
    rows: int
    """Number of rows that were looked at."""
    share: float | None
    """Share of production's rows that have a value; None if production has no rows."""


Spellings = Mapping[str, tuple[int, str]]
"""By names of fields in the program, the place of the source and its column that comes near."""


@dataclass(slots=True)
class _Values:
    rows: int = 0
    nulls: int = 0


def check_decoded(
    table: Table,
    result: Result,
    output: Output,
    rows: WindowRows | None,
    batch: StagedBatch,
    *,
    columns: Iterable[str],
    spellings: Spellings,
) -> bool:
    """Checks that the first rows of a result have values where production's have, before they are
    staged.

    Args:
        rows: the window's rows of the output; None if it has no ``timestampColumn``.
        columns: names of the columns that the query gives values: others are null by its own
            choice.
        spellings: names in the program that columns of its sources come near.

    Returns:
        Whether enough rows were staged before, so that no further batch need be checked.

    Raises:
        InvalidPlanInput: a column that nearly all of production's rows have, or the
            ``timestampColumn``, is null in every row.
    """
    staged, time = read_staged(table.metadata, result), output.timestamp_column or ""
    if staged is not None and staged.rows >= _ENOUGH_ROWS:
        return True
    if batch.rows_without_time >= _FEWEST_ROWS and not output.publish.allows_null(time):
        column = NullColumn(time, batch.rows_without_time, None)
        raise InvalidPlanInput(_problem(output, [column], spellings))
    if not batch.files:
        return False
    files = [*staged_files(table, result), *batch.files]
    written = {name.lower() for name in columns}
    known = {bare(name) for name in spellings}
    found = [
        column
        for column in null_columns(table, output, rows, files)
        if column.name.partition(".")[0].lower() in written
        and (
            column.rows >= _FEWEST_ROWS and _field(column.name) in known
            if column.share is None
            else column.share >= _NEARLY_ALL
        )
    ]
    if found:
        own = {field.name for field in table.schema().fields}
        raise InvalidPlanInput(_problem(output, found, _of_records(spellings, own)))
    return False


def staged_nulls(output: Output, result: Result, window: Window) -> tuple[str, ...]:
    """The first columns that are null in every row of a staged result, although production's rows
    of the same time have values, or nearly all of its newest rows if it has none of that time.

    Raises:
        BadInput: the table cannot be opened, or the branch holds something else.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    rows = window_rows(table.schema(), output, window)
    found = null_columns(table, output, rows, staged_files(table, result))
    names = (each.name for each in found if each.share is not None)
    return tuple(name[:_MOST_CHARACTERS] for name in islice(names, MOST_NULL_COLUMNS))


def null_columns(
    table: Table, output: Output, rows: WindowRows | None, files: Sequence[DataFile]
) -> list[NullColumn]:
    """Columns that are null in every row of some files, unless production's rows or
    ``publish.allowNull`` make that plausible. Only manifests are read: what has no statistics is
    taken to have values in the result, and none in production.
    """
    names = _names(table.schema())
    counted = _count(files, names, unknown=0)
    empty = {
        field_id: name
        for field_id, name in names.items()
        if counted[field_id].rows == counted[field_id].nulls > 0
        and not output.publish.allows_null(name)
    }
    if not empty:
        return []
    same_time = _same_time(table, rows, files)
    production = _count(same_time or _newest(table), empty, unknown=1)
    least = 0.0 if same_time else _NEARLY_ALL
    found = []
    for field_id, name in empty.items():
        there, here = production[field_id], counted[field_id].rows
        share = 1 - there.nulls / there.rows if there.rows else None
        if share is None or (share >= least and _improbable(there, here)):
            found.append(NullColumn(name, here, share))
    return found


def _improbable(production: _Values, rows: int) -> bool:
    """Whether so many rows without a value are too many to be a coincidence."""
    without = (production.nulls + 1) / (production.rows + 1)
    return rows * math.log(without) <= math.log(_CHANCE)


def _count(files: Iterable[DataFile], fields: Iterable[int], *, unknown: int) -> dict[int, _Values]:
    """Values and nulls of fields. Of a file without statistics, all rows are null, or none is, as
    ``unknown`` says.
    """
    counts = {field_id: _Values() for field_id in fields}
    for file in files:
        values, nulls = file.value_counts or {}, file.null_value_counts or {}
        for field_id, counted in counts.items():
            rows = max(values.get(field_id, file.record_count), 0)
            counted.rows += rows
            counted.nulls += min(max(nulls.get(field_id, rows * unknown), 0), rows)
    return counts


def _names(schema: Schema) -> dict[int, str]:
    """By their IDs, the names of fields that have statistics."""
    return {
        field_id: name
        for field_id in schema.field_ids
        if schema.find_type(field_id).is_primitive
        and (name := schema.find_column_name(field_id)) is not None
    }


def _same_time(table: Table, rows: WindowRows | None, files: Sequence[DataFile]) -> list[DataFile]:
    """Production's files that may have rows of the time that the files of a result have."""
    current = table.metadata.current_snapshot_id
    bounds = [] if rows is None else [rows.bounds(file) for file in files]
    known = [each for each in bounds if each is not None]
    if rows is None or current is None or not known:
        return []
    first, last = min(each[0] for each in known), max(each[1] for each in known)
    near = replace(rows, first=first, end=last + 1).expression()
    return [task.file for task in scan_files(table, current, near)]


def _newest(table: Table) -> list[DataFile]:
    current = table.metadata.current_snapshot()
    manifests = [] if current is None else current.manifests(table.io)
    newest = sorted(manifests, key=lambda each: each.sequence_number or 0, reverse=True)
    entries = (
        entry.data_file
        for manifest in newest
        if manifest.content is ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
    )
    return list(islice(entries, _MOST_FILES))


def _problem(output: Output, found: Sequence[NullColumn], spellings: Spellings) -> Problem:
    names = [each.name for each in found[:MOST_NULL_COLUMNS]]
    more = f" and {len(found) - len(names)} more" if len(found) > len(names) else ""
    several, rows = len(found) > 1, max(each.rows for each in found)
    shares = [each.share for each in found if each.share is not None]
    if shares:
        least = min(shares)
        part = "all" if least == 1 else f"at least {math.floor(1_000 * least) / 10:g} %"
        but = f"although {part} of production's rows have a value"
    elif names == [output.timestamp_column]:
        but = "and a row without it is not in the window"
    else:
        but = "although the sources have columns with nearly these names"
    allowed = f"publish.allowNull: [{', '.join(names)}] of output {output.name}"
    return Problem(
        "spec.outputs",
        f"column{'s' if several else ''} {', '.join(names)}{more} of {output.table}"
        f" {'are' if several else 'is'} null in all {count(rows, 'row')} of the result so far,"
        f" {but}: the application may decode fields that its records do not have here",
        f"{_renamed(found, spellings)}; or, if null is right, set {allowed}",
    )


def _renamed(found: Sequence[NullColumn], spellings: Spellings) -> str:
    """How to give the program the fields that it decodes."""
    null = {_field(each.name) for each in found}
    near = {name: each for name, each in spellings.items() if bare(name) in null} or spellings
    if not near:
        return (
            "compare the names and types of the fields that it decodes with the columns of its"
            " sources, and rename those that differ with live.kafka.value.fields"
        )
    fields: defaultdict[int, list[str]] = defaultdict(list)
    for name, (place, column) in islice(near.items(), MOST_NULL_COLUMNS):
        fields[place].append(f"{name}: {column}")
    return "set " + " and ".join(
        f"spec.sources[{place}].live.kafka.value.fields: {{{', '.join(each)}}}"
        for place, each in fields.items()
    )


def _of_records(spellings: Spellings, own: Container[str]) -> Spellings:
    """Without names of the output's own columns, where the program spells a column in another way
    as well: that is what it decodes.
    """
    decoded = {name: each for name, each in spellings.items() if name not in own}
    return {
        name: each
        for name, each in spellings.items()
        if name in decoded or each not in decoded.values()
    }


def _field(name: str) -> str:
    return bare(name.rpartition(".")[2])
