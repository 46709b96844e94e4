"""What is to be delivered: the staged batches of an output, in their order, and the table that has
them until then.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.exceptions import (
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile

from backfill.api.errors import BackfillError, BadInput, Problem, first_line
from backfill.api.output import Output, PublishMode
from backfill.iceberg.catalogs import open_catalog
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.data_files import number_of
from backfill.outputs.result_names import Result
from backfill.outputs.staging import staged_files

_MADE_FOR = "backfill.made-for"
"""Property of a table that was created for the rows of a Backfill, whose uid it has."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one micro-batch."""

    number: int
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """How many they are."""
        return sum(file.record_count for file in self.files)


def batches_of(output: Output, result: Result) -> list[Batch]:
    """The staged batches that have rows.

    Raises:
        BadInput: the table cannot be opened, or the branch holds something else.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    return by_batch(staged_files(table, result), result)


def by_batch(files: Iterable[DataFile], result: Result) -> list[Batch]:
    """Files of a result by their batches, in the order in which tasks have written them."""
    found: dict[int, list[DataFile]] = defaultdict(list)
    for file in files:
        number = result.batch_of(file.file_path)
        if number is not None and file.record_count:
            found[number].append(file)
    return [Batch(number, tuple(sorted(found[number], key=number_of))) for number in sorted(found)]


def make_table(output: Output, result: Result, columns: pa.Schema) -> None:
    """Creates the table of an output whose rows are delivered, unless it exists.

    Raises:
        BadInput: it cannot be created.
    """
    catalog_name, _, identifier = output.table.partition(".")
    namespace = identifier.rpartition(".")[0]
    try:
        catalog = open_catalog(catalog_name)
        if catalog.table_exists(identifier):
            return
        catalog.create_namespace_if_not_exists(namespace)
        catalog.create_table(identifier, columns, properties={_MADE_FOR: result.uid})
    except TableAlreadyExistsError:
        return
    except Exception as error:  # catalogs raise whatever their client libraries raise
        raise BadInput(
            Problem(
                "spec.outputs",
                f"table {output.table}, which would hold the rows of output {output.name} until"
                f" they are delivered, cannot be created: {first_line(error)}",
                "create it with the columns of the query, or allow the application to create it;"
                " cast or drop columns of types that Iceberg does not have",
            )
        ) from error


def is_missing(output: Output) -> bool:
    """Whether the table of an output is still to be created by the driver."""
    if output.publish.mode is not PublishMode.DELIVER:
        return False
    catalog_name, _, identifier = output.table.partition(".")
    try:
        return not open_catalog(catalog_name).table_exists(identifier)
    except Exception:  # what opens the table says why it cannot
        return False


def drop_table(output: Output) -> None:
    """Drops the table if it was created for a Backfill, and nothing is in it, not even of another.

    Raises:
        BackfillError: it cannot be opened, or dropped.
    """
    if output.publish.mode is not PublishMode.DELIVER:
        return
    table = Catalogs().load_table(output.table, "spec.outputs")
    if (
        _MADE_FOR not in table.properties
        or table.metadata.refs
        or table.current_snapshot() is not None
    ):
        return
    catalog_name, _, identifier = output.table.partition(".")
    try:
        open_catalog(catalog_name).drop_table(identifier)
    except NoSuchTableError:
        return
    except Exception as error:  # catalogs raise whatever their client libraries raise
        raise BackfillError(f"{output.table} cannot be dropped: {first_line(error)}") from error
