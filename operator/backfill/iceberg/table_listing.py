"""The tables of all catalogs that are configured, by name."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from backfill.api.errors import Problem, first_line
from backfill.api.field_types import MOST_TABLE_NAME, TABLE_NAME_PATTERN
from backfill.iceberg.catalog_problems import catalog_problem, lasts
from backfill.iceberg.catalogs import known_catalogs, open_catalog
from backfill.iceberg.library_errors import says_later
from backfill.iceberg.open_tables import Catalogs

_MOST_TABLES = 10_000
_DEEPEST = 4
"""Levels of namespaces that are looked into."""


class KnownTables:
    """The tables of the configured catalogs, each listed once and loaded when it is asked for."""

    def __init__(self, configured: Callable[[], Sequence[str]] = known_catalogs):
        """``configured`` gives the names of the catalogs."""
        self._configured = configured
        self._catalogs = Catalogs()
        self._loaded: dict[str, Table] = {}
        self.problems: list[str] = []
        """Why catalogs could not be listed, and where not all of their tables are known."""
        self.unread: list[Problem] = []
        """Those of them that may hide a table with a name that is looked for."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All tables as ``catalog.namespace.table``, sorted."""
        return tuple(sorted(name for catalog in self._configured() for name in self._of(catalog)))

    def find(self, written: str) -> str | None:
        """The table that a program means, which may leave out the catalog; None if there is none or
        if several have this name. A full name means that table, even if others would match without
        their catalog.
        """
        wanted = written.replace("`", "").lower()
        lower = {name: name.lower() for name in self.names}
        full = [name for name in self.names if lower[name] == wanted]
        found = full or [name for name in self.names if lower[name].partition(".")[2] == wanted]
        return found[0] if len(found) == 1 else None

    def load(self, name: str) -> Table:
        """A table by its full name.

        Raises:
            InvalidPlanInput: it cannot be loaded.
        """
        if name not in self._loaded:
            self._loaded[name] = self._catalogs.load_source(name, "")
        return self._loaded[name]

    def not_read(self, problem: Problem) -> None:
        """Notes what could not be read, once."""
        if problem not in self.unread:
            self.unread.append(problem)
            self.problems.append(str(problem))

    def _of(self, name: str) -> list[str]:
        try:
            catalog = open_catalog(name)
        except Exception as error:  # whatever the client libraries raise
            self.not_read(catalog_problem(name, "", error))
            return []
        try:
            found: list[str] = []
            unusable = ""
            for table in _tables(catalog):
                if not _is_usable(f"{name}.{table}"):
                    unusable = unusable or table
                    continue
                if len(found) == _MOST_TABLES:
                    self.problems.append(
                        f"catalog {name} has more than {_MOST_TABLES:,} tables; only the first"
                        " ones were searched"
                    )
                    break
                found.append(f"{name}.{table}")
        except Exception as error:
            message = f"catalog {name} does not list its tables: {first_line(error)}"
            self.not_read(
                Problem("", message, may_pass=not lasts(error), unavailable=says_later(error))
            )
            return []
        if unusable:
            self.problems.append(
                f"catalog {name} has tables that a Backfill cannot refer to, such as {unusable!r}"
            )
        return found


def _is_usable(name: str) -> bool:
    return len(name) <= MOST_TABLE_NAME and re.fullmatch(TABLE_NAME_PATTERN, name) is not None


def _tables(catalog: Catalog) -> Iterator[str]:
    pending = [(namespace, 1) for namespace in catalog.list_namespaces()]
    seen = set()
    while pending:
        namespace, level = pending.pop()
        if namespace in seen:
            continue
        seen.add(namespace)
        for identifier in catalog.list_tables(namespace):
            yield ".".join(identifier)
        if level < _DEEPEST:
            pending += [(each, level + 1) for each in catalog.list_namespaces(namespace)]
