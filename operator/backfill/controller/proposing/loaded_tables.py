"""The tables of the catalogs, for proposals."""

from collections.abc import Iterator, Mapping, Sequence

from pyiceberg.table import Table
from pyiceberg.types import StructType

from backfill.api.errors import InvalidPlanInput
from backfill.controller.proposing.proposed import ARRIVAL_PROPERTY
from backfill.iceberg.table_listing import KnownTables


class LoadedTables:
    """The tables of the catalogs, with their columns as text. A table that cannot be loaded has
    none, and is among the problems.
    """

    def __init__(self, tables: KnownTables):
        self._tables = tables

    @property
    def names(self) -> Sequence[str]:
        """All of them, as ``catalog.namespace.table``."""
        return self._tables.names

    def find(self, written: str) -> str | None:
        """The table that a program means, which may leave out the catalog."""
        return self._tables.find(written)

    def columns(self, name: str) -> Mapping[str, str]:
        """The columns of a table, nested ones with dots, with their types in Iceberg."""
        table = self._load(name)
        return {} if table is None else dict(_columns(table.schema().as_struct()))

    def arrival_column(self, name: str) -> str | None:
        """The column that the table's properties name as the time at which rows arrived."""
        table = self._load(name)
        return None if table is None else table.properties.get(ARRIVAL_PROPERTY)

    def _load(self, name: str) -> Table | None:
        try:
            return self._tables.load(name)
        except InvalidPlanInput as error:
            for problem in error.problems:
                self._tables.not_read(problem)
            return None


def _columns(struct: StructType, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Columns with their types, also the fields of structs, but not what is in lists and maps: that
    is no value of a row.
    """
    for field in struct.fields:
        name = f"{prefix}{field.name}"
        yield name, str(field.field_type)
        if isinstance(field.field_type, StructType):
            yield from _columns(field.field_type, f"{name}.")
