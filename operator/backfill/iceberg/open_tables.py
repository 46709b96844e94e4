"""Opens tables by name. Errors name the most similar known names."""

import difflib
from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.table import Table

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.workspace_locations import is_below
from backfill.iceberg.catalog_problems import catalog_problem, lasts
from backfill.iceberg.catalogs import open_catalog
from backfill.iceberg.library_errors import reason
from backfill.iceberg.table_locations import ambiguous_locations


class Catalogs:
    """The catalogs that planning uses, each opened once."""

    def __init__(self) -> None:
        self._opened: dict[str, Catalog] = {}

    def load_table(self, name: str, field: str) -> Table:
        """The table with a name ``catalog.namespace.table``.

        Raises:
            InvalidPlanInput: the catalog is unknown or unavailable, the table does not exist, or
                its server plans scans itself.
        """
        catalog_name, _, identifier = name.partition(".")
        catalog = self._catalog(catalog_name, field)
        try:
            table = catalog.load_table(identifier)
        except NoSuchIcebergTableError as error:
            raise InvalidPlanInput(
                Problem(field, f"{name} is not an Iceberg table", "use an Iceberg table")
            ) from error
        except (NoSuchTableError, NoSuchNamespaceError):
            raise InvalidPlanInput(_missing_table(catalog, name, identifier, field)) from None
        except Exception as error:  # catalogs raise whatever their client libraries raise
            raise InvalidPlanInput(
                Problem(
                    field,
                    f"table {name} cannot be loaded: {reason(error)}",
                    "check the catalog and its credentials",
                    may_pass=not lasts(error),
                )
            ) from error
        if catalog.supports_server_side_planning():
            raise InvalidPlanInput(
                Problem(
                    field,
                    f"catalog {catalog_name} plans scans on its server, which returns no bounds"
                    f" for the files of {name}",
                    "set scan-planning-mode: client in the catalog's properties",
                )
            )
        if ambiguous := tuple(ambiguous_locations(table, name, field)):
            raise InvalidPlanInput(ambiguous)
        return table

    def _catalog(self, name: str, field: str) -> Catalog:
        if name not in self._opened:
            try:
                self._opened[name] = open_catalog(name)
            except Exception as error:
                raise InvalidPlanInput(catalog_problem(name, field, error)) from error
        return self._opened[name]


def is_same(one: Table, other: Table) -> bool:
    """Whether two names, perhaps of two catalogs, refer to the same table."""
    places = one.location(), other.location()
    return one.metadata.table_uuid == other.metadata.table_uuid or (
        is_below(*places) and is_below(*reversed(places))
    )


def near(wrong: str, names: Mapping[str, object] | list[str]) -> str:
    """A fix that names what was probably meant."""
    matches = difflib.get_close_matches(wrong, list(names), n=3, cutoff=0.5)
    if matches:
        return f"did you mean {' or '.join(matches)}?"
    return f"available: {', '.join(sorted(names)[:20])}" if names else ""


def _missing_table(catalog: Catalog, name: str, identifier: str, field: str) -> Problem:
    namespace = identifier.rpartition(".")[0]
    try:
        known = [".".join((catalog.name, *parts)) for parts in catalog.list_tables(namespace)]
    except Exception:  # only a hint is lost
        known = []
    return Problem(
        field,
        f"table {name} does not exist",
        near(name, known) or f"namespace {namespace} has no tables",
    )
