"""Opens output tables, and says what about them a backfill can not work with."""

from collections.abc import Sequence

from pyiceberg.exceptions import NotInstalledError
from pyiceberg.table import Table, TableProperties
from pyiceberg.transforms import UnknownTransform

from backfill.api.backfill import Output, PublishMode, Window
from backfill.api.errors import BadInput, Problem
from backfill.outputs.result import Result
from backfill.outputs.staging import summary_of, taken
from backfill.outputs.window import window_rows
from backfill.planning.iceberg.tables import Catalogs


def check_outputs(outputs: Sequence[Output], result_of: Sequence[Result], window: Window) -> list[Problem]:
    """Everything about the outputs that would keep a new backfill from working; checked before anything runs.

    ``result_of`` are the results, in the order of ``outputs``. A branch that exists already is a problem here, unless an
    earlier Backfill of the same name left it.
    """
    catalogs = Catalogs()
    problems = []
    for index, (output, result) in enumerate(zip(outputs, result_of, strict=True)):
        field = f"spec.outputs[{index}]"
        try:
            problems += _check(catalogs.load_table(output.table, f"{field}.table"), output, result, window, field)
        except BadInput as error:
            problems += error.problems
        problems += _shared(outputs, index, field)
    return problems


def _check(table: Table, output: Output, result: Result, window: Window, field: str) -> list[Problem]:
    problems = [*_format(table, output, field), *_partitions(table, output, field)]
    try:
        window_rows(table.schema(), output, window, field)
    except BadInput as error:
        problems += error.problems
    if output.publish.mode is PublishMode.REPLACE and output.timestamp_column is None:
        message = "Replace needs to know which rows of the table belong to the window"
        problems.append(Problem(f"{field}.timestampColumn", message, "set timestampColumn"))
    if result.branch in table.metadata.refs:
        head = table.metadata.snapshot_by_name(result.branch)
        if head is not None and result.earlier(summary_of(head)) is None:
            problems.append(taken(result, head))
    return problems


def _format(table: Table, output: Output, field: str) -> list[Problem]:
    problems = []
    if table.format_version > 2:
        message = f"table {output.table} has format version {table.format_version}, which can be read but not written here"
        problems.append(Problem(f"{field}.table", message, "use a table of format version 2"))
    file_format = table.properties.get(TableProperties.WRITE_FILE_FORMAT, "parquet").lower()
    if file_format != "parquet":
        message = f"table {output.table} is written as {file_format}, and a backfill writes Parquet"
        fix = f"set the table property {TableProperties.WRITE_FILE_FORMAT} to parquet"
        problems.append(Problem(f"{field}.table", message, fix))
    return problems


def _partitions(table: Table, output: Output, field: str) -> list[Problem]:
    problems = []
    for part in table.spec().fields:
        source = table.schema().find_field(part.source_id)
        try:
            if isinstance(part.transform, UnknownTransform):
                raise ValueError("unknown transform")
            part.transform.pyarrow_transform(source.field_type)
        except (ValueError, NotInstalledError) as error:
            message = f"table {output.table} is partitioned by {part.transform}({source.name}), which can not be written: {error}"
            problems.append(Problem(f"{field}.table", message, "install pyiceberg-core, or partition the table in another way"))
    return problems


def _shared(outputs: Sequence[Output], index: int, field: str) -> list[Problem]:
    """Replacing a window for one output would remove what another one has published there."""
    output = outputs[index]
    others = [other.name for place, other in enumerate(outputs) if place != index and other.table == output.table]
    if output.publish.mode is not PublishMode.REPLACE or not others:
        return []
    message = f"{output.table} is also written by the output {' and '.join(others)}; replacing the window would remove its rows"
    return [Problem(f"{field}.publish.mode", message, "use Append, or two Backfills one after the other")]
