"""Opens tables by name. Errors name the most similar known names."""

import difflib
from collections.abc import Mapping

from pydantic import ValidationError as PydanticError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.exceptions import ValidationError as MetadataError
from pyiceberg.table import Table

from backfill.api.errors import InvalidPlanInput, Problem, first_line
from backfill.api.workspace_locations import is_below
from backfill.iceberg.catalog_problems import catalog_problem, lasts
from backfill.iceberg.catalogs import open_catalog
from backfill.iceberg.library_errors import says_later
from backfill.iceberg.table_locations import ambiguous_locations
from backfill.iceberg.unavailable_catalogs import answered
from backfill.iceberg.variant_columns import know_variants, variant_columns, without_variants

_AWAY_SECONDS = 30.0
"""How long a catalog may answer that it is not available before that is a problem."""

_METADATA_PARTS = frozenset(
    ("schemas", "schema", "partition-specs", "partition-spec", "sort-orders", "snapshots")
)


class Catalogs:
    """The catalogs that planning uses, each opened once."""

    def __init__(self) -> None:
        self._opened: dict[str, Catalog] = {}
        self.left_out: dict[str, list[str]] = {}
        """By table that was opened to be read, its columns that it is shown without."""

    def load_table(self, name: str, field: str) -> Table:
        """The table with a name ``catalog.namespace.table``.

        Raises:
            InvalidPlanInput: the catalog is unknown or unavailable, the table does not exist, has
                what cannot be written, or its server plans scans itself.
        """
        table = self._load(name, field)
        # files from before such a column was dropped still have it, and cannot be read either
        schemas = table.schemas().values()
        if variants := dict.fromkeys(each for one in schemas for each in variant_columns(one)):
            why = f"{', '.join(variants)} of type variant"
            raise InvalidPlanInput(_not_supported(name, field, why))
        return table

    def load_source(self, name: str, field: str) -> Table:
        """The same for a table that is only read, without its columns of type ``variant``."""
        table = self._load(name, field)
        self.left_out[name] = variant_columns(table.schema())
        return without_variants(table)

    def _load(self, name: str, field: str) -> Table:
        catalog_name, _, identifier = name.partition(".")
        catalog = self._catalog(catalog_name, field)
        try:
            table = answered(lambda: catalog.load_table(identifier), _AWAY_SECONDS, says_later)
        except NoSuchIcebergTableError as error:
            raise InvalidPlanInput(
                Problem(field, f"{name} is not an Iceberg table", "use an Iceberg table")
            ) from error
        except (NoSuchTableError, NoSuchNamespaceError):
            raise InvalidPlanInput(_missing_table(catalog, name, identifier, field)) from None
        except Exception as error:  # catalogs raise whatever their client libraries raise
            if why := _unsupported(error):
                raise InvalidPlanInput(_not_supported(name, field, why)) from error
            raise InvalidPlanInput(
                Problem(
                    field,
                    f"table {name} cannot be loaded: {first_line(error)}",
                    "check the catalog and its credentials",
                    may_pass=not lasts(error),
                    unavailable=says_later(error),
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
            know_variants()
            try:
                self._opened[name] = answered(lambda: open_catalog(name), _AWAY_SECONDS, says_later)
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
    by_lower_case = {name.lower(): name for name in names}
    found = difflib.get_close_matches(wrong.lower(), by_lower_case, n=1, cutoff=0.5)
    if found:
        return f"did you mean {by_lower_case[found[0]]}?"
    return f"available: {', '.join(sorted(names)[:20])}" if names else ""


def _not_supported(name: str, field: str, why: str) -> Problem:
    fix = "use a table without it, such as a copy in which it was dropped or rewritten"
    message = f"table {name} has metadata that PyIceberg does not support: {why}"
    return Problem(field, message, fix)


def _unsupported(error: Exception) -> str:
    """What PyIceberg does not support in the metadata of a table, and where; empty for errors of
    another kind.
    """
    cause = error if isinstance(error, PydanticError) else error.__cause__
    if isinstance(cause, PydanticError):
        for each in cause.errors(include_url=False, include_input=False):
            place = ".".join(map(str, each["loc"]))
            if each["loc"][-1:] == ("manifest-list",) and each["type"] == "missing":
                return f"{place.rpartition('.')[0]} lists its manifests inline (format version 1)"
            if _METADATA_PARTS.intersection(each["loc"]):
                return f"{place}: {each['msg'].removeprefix('Value error, ')}"
    elif isinstance(error, MetadataError):
        return first_line(error)
    return ""


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
