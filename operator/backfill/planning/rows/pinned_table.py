"""The table of a source, pinned by the plan. It is loaded in the driver, sent to tasks, and opened
there without a catalog.

Importing PyIceberg takes half a second, so only loading and opening do it.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Self

from backfill.api.errors import BackfillError, InvalidPlanInput
from backfill.planning.plan import SourceInput

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.name_mapping import NameMapping


@dataclass(frozen=True)
class SourceTable:
    """What a task needs to read files of a table. Small, hashable and picklable."""

    source: SourceInput
    """The source, as planned."""
    schema_json: str
    """The schema to read rows with, pinned by the plan."""
    name_mapping_json: str | None
    """Names of columns for files without field ids."""
    location: str
    """Location of the table."""
    io_properties: tuple[tuple[str, str], ...] = field(repr=False)
    """Properties to open its files. They may contain credentials, so they are sent to tasks only,
    and never printed.
    """

    @classmethod
    def of(cls, table: "Table", source: SourceInput) -> Self:
        """The table of a source, as it was loaded from its catalog."""
        return cls(
            source=source,
            schema_json=table.schemas()[source.schema_id].model_dump_json(),
            name_mapping_json=table.properties.get("schema.name-mapping.default"),
            location=table.location(),
            io_properties=tuple(
                sorted((key, str(value)) for key, value in table.io.properties.items())
            ),
        )

    def open(self) -> "OpenTable":
        """Opens it for reading files, once in a process."""
        return _open(self)


@dataclass(frozen=True, eq=False)
class OpenTable:
    """A table whose files can be read in this process."""

    source: SourceInput
    schema: "Schema"
    name_mapping: "NameMapping | None"
    io: "FileIO"
    row_filter: "BooleanExpression"
    """The filter of the source, bound to the schema."""


def load_source_table(source: SourceInput) -> SourceTable:
    """Loads the table of a source from its catalog.

    Raises:
        InvalidPlanInput: catalog or table cannot be loaded, or the table is no longer the planned
            one.
        BackfillError: the catalog does not answer.
    """
    try:
        table = _load(source)
    except InvalidPlanInput as error:
        if error.may_pass:  # where sources run, only the class of an error is known
            raise BackfillError(str(error)) from error
        raise
    return SourceTable.of(table, source)


def _load(source: SourceInput) -> "Table":
    from backfill.iceberg.open_tables import Catalogs
    from backfill.planning.metadata.pinning import check_pinned

    catalogs = Catalogs()
    check_pinned(catalogs, source, "spec.sources")
    return catalogs.load_source(source.table, "spec.sources")


@cache
def _open(table: SourceTable) -> OpenTable:
    from pyiceberg.expressions.visitors import bind
    from pyiceberg.io import load_file_io
    from pyiceberg.schema import Schema
    from pyiceberg.table.name_mapping import parse_mapping_from_json

    from backfill.planning.metadata.source_filter import row_filter

    schema = Schema.model_validate_json(table.schema_json)
    return OpenTable(
        source=table.source,
        schema=schema,
        name_mapping=(
            parse_mapping_from_json(table.name_mapping_json) if table.name_mapping_json else None
        ),
        io=load_file_io(dict(table.io_properties), table.location),
        row_filter=bind(schema, row_filter(table.source), case_sensitive=True),
    )
