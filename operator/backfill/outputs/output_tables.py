"""Opens output tables, and checks that a backfill can work with them."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import DoubleType, FloatType

from backfill.api.errors import BadInput, Problem
from backfill.api.manifests.spec_rules import output_is_source
from backfill.api.output import Output
from backfill.api.source import Source
from backfill.api.spec import Window
from backfill.iceberg.format_v3 import V3
from backfill.iceberg.open_tables import Catalogs, is_same
from backfill.iceberg.table_scan import scan_files
from backfill.outputs.comparable_outputs import check_comparison
from backfill.outputs.compared_tables import other_table
from backfill.outputs.delivered_batches import is_missing
from backfill.outputs.export_places import check_exports
from backfill.outputs.replaced_files import irremovable, why_not_rewritten
from backfill.outputs.result_names import Result
from backfill.outputs.row_numbers import NUMBERS
from backfill.outputs.staging import summary_of, taken
from backfill.outputs.upserted_rows import check_keys
from backfill.outputs.window_rows import WindowRows, cut_days, window_rows

_ENCRYPTED_WITH = "encryption.key-id"


def check_outputs(
    outputs: Sequence[Output],
    result_of: Sequence[Result],
    window: Window,
    sources: Sequence[Source] = (),
    workspace: str = "",
) -> list[Problem]:
    """All problems of the outputs that would prevent a new backfill from working,
    checked before anything runs. ``workspace`` is the Backfill's part of it.

    ``result_of`` are the results, in the order of ``outputs``. An existing branch is a problem,
    unless an earlier Backfill of the same name and place has left it. Tables are compared by
    identity, not by name.
    """
    catalogs = Catalogs()
    problems = []
    read = [_opened(catalogs, source.table) for source in sources]
    written: list[Table | None] = []
    for index, (output, result) in enumerate(zip(outputs, result_of, strict=True)):
        field = f"spec.outputs[{index}]"
        table = None
        if is_missing(output):  # the driver creates it
            written.append(table)
            continue
        try:
            table = catalogs.load_table(output.table, f"{field}.table")
            problems += _check(table, output, result, window, field)
            problems += _also_written(table, output, zip(outputs, written, strict=False), field)
            problems += _also_read(table, output, sources, read, field)
            if output.reference is not None:
                other_table(catalogs, table, output, window, field)
        except BadInput as error:
            problems += error.problems
        written.append(table)
    names = (*(each.table for each in outputs), *(each.table for each in sources))
    known = zip(names, (*written, *read), strict=True)
    tables = {name: table for name, table in known if table is not None}
    problems += check_exports(outputs, result_of, tables, workspace)
    return problems


def _opened(catalogs: Catalogs, name: str) -> Table | None:
    """A source's table; None if it cannot be opened, which planning reports."""
    try:
        return catalogs.load_source(name, "")
    except BadInput:
        return None


def _also_written(
    table: Table, output: Output, others: Iterable[tuple[Output, Table | None]], field: str
) -> Iterator[Problem]:
    """Outputs that write the same table. When one is published it would find the rows of the other,
    and replace them or be refused because of them.
    """
    for other, written in others:
        if written is not None and is_same(table, written):
            message = f"{output.table} is also the table of output {other.name} ({other.table})"
            yield Problem(
                f"{field}.table",
                message,
                "publish one output per table; run one Backfill for each of them",
            )


def _also_read(
    table: Table,
    output: Output,
    sources: Sequence[Source],
    read: Sequence[Table | None],
    field: str,
) -> Iterator[Problem]:
    for number, (source, known) in enumerate(zip(sources, read, strict=True)):
        if known is None or source.snapshot.is_chosen:
            continue
        if is_same(table, known):
            yield output_is_source(f"{field}.table", output.table, number)


def _check(
    table: Table, output: Output, result: Result, window: Window, field: str
) -> list[Problem]:
    problems = [*_format(table, output, field), *_partitions(table, output, field)]
    try:
        rows = window_rows(table.schema(), output, window, field)
        problems += cut_days(table.schema(), output, rows, window)
        if rows is not None and output.publish.mode.takes_rows_away:
            problems += _irremovable(table, output, rows, field)
    except BadInput as error:
        problems += error.problems
    mode = output.publish.mode
    if mode.takes_rows_away and output.timestamp_column is None:
        message = f"{mode} needs to know which rows of the table belong to the window"
        problems.append(Problem(f"{field}.timestampColumn", message, "set timestampColumn"))
    problems += check_keys(table.schema(), output, field)
    problems += check_comparison(table.schema(), output, field)
    if result.branch in table.metadata.refs:
        head = table.metadata.snapshot_by_name(result.branch)
        if head is not None and result.earlier(summary_of(head)) is None:
            problems.append(taken(result, head))
    return problems


def _format(table: Table, output: Output, field: str) -> list[Problem]:
    problems = []
    if _ENCRYPTED_WITH in table.properties:
        message = f"table {output.table} is encrypted, and a backfill would write plain files"
        problems.append(Problem(f"{field}.table", message, "use a table without encryption"))
    if table.format_version >= V3:
        for name in sorted({*NUMBERS} & {column.name for column in table.schema().fields}):
            message = (
                f"table {output.table} has a column {name}, which in format version 3 is the name"
                " of what Iceberg itself keeps of each row"
            )
            problems.append(Problem(f"{field}.table", message, "rename the column"))
    file_format = table.properties.get(TableProperties.WRITE_FILE_FORMAT, "parquet").lower()
    if file_format != "parquet":
        message = f"table {output.table} is written as {file_format}, but a backfill writes Parquet"
        fix = f"set the table property {TableProperties.WRITE_FILE_FORMAT} to parquet"
        problems.append(Problem(f"{field}.table", message, fix))
    return problems


def _partitions(table: Table, output: Output, field: str) -> list[Problem]:
    problems = []
    for part in table.spec().fields:
        try:
            _check_written(part, table.schema())
        except (ValueError, NotInstalledError) as error:
            source = table.schema().find_column_name(part.source_id) or "a dropped column"
            message = (
                f"table {output.table} is partitioned by {part.transform}({source}), which cannot"
                f" be written: {error}"
            )
            missing = isinstance(error, NotInstalledError)
            problems.append(Problem(f"{field}.table", message, _fix(part, missing=missing)))
    for source_id, parts in sorted(table.spec().source_id_to_fields_map.items()):
        column = table.schema().find_column_name(source_id)
        if len(parts) > 1 and column is not None:
            message = (
                f"table {output.table} has several partition fields of column {column}"
                f" ({', '.join(str(part.transform) for part in parts)}), which PyIceberg cannot"
                " write"
            )
            fix = "use a table with one partition field of each column"
            problems.append(Problem(f"{field}.table", message, fix))
    return problems


def _check_written(part: PartitionField, schema: Schema) -> None:
    """Checks that PyIceberg can write values of a partition field.

    Raises:
        ValueError: it cannot.
        NotInstalledError: a library is missing.
    """
    if part.source_id not in schema.field_ids:
        raise ValueError("the type of its values is unknown")
    source = schema.find_field(part.source_id)
    if isinstance(part.transform, UnknownTransform):
        raise ValueError("unknown transform")
    if isinstance(part.transform, VoidTransform):
        if source.required:
            raise ValueError(
                "the column is required, and a partition field that was removed is null"
            )
    elif isinstance(source.field_type, FloatType | DoubleType):
        raise ValueError("rows with 0.0 and -0.0 would be written twice, and those with NaN not")
    (column,) = schema_to_pyarrow(Schema(source), include_field_ids=False).types
    part.transform.pyarrow_transform(source.field_type)(pa.array([], column))


def _fix(part: PartitionField, *, missing: bool) -> str:
    """``missing``: whether it could be written with a library that is not installed."""
    if isinstance(part.transform, VoidTransform):
        return "make the column optional, or use a table that was never partitioned by it"
    return f"{'install pyiceberg-core, or ' if missing else ''}partition the table in another way"


def _irremovable(table: Table, output: Output, rows: WindowRows, field: str) -> list[Problem]:
    """Files that Replace or Upsert could not remove.

    A run of days should not fail with what can be known before.
    """
    current = table.metadata.current_snapshot()
    if current is None:
        return []
    dropped = any(
        part.source_id not in table.schema().field_ids
        for spec in table.specs().values()
        for part in spec.fields
    )
    by_value = summary_of(current).get("total-equality-deletes") != "0"
    if not dropped and not by_value:
        return []
    try:
        tasks = scan_files(table, current.snapshot_id, rows.expression())
        why = irremovable(table, (task.file for task in tasks))
    except ValueError as error:
        message = f"table {output.table} {why_not_rewritten(error)}"
        return [Problem(f"{field}.table", message, "compact the table")]
    fix = "rewrite them with the table's current partitioning"
    return [Problem(f"{field}.table", f"{output.table}: {why}", fix)] if why else []
