"""The operator's commits to the catalog, of which one is cut."""

from collections.abc import Callable
from typing import Any

import pytest
from mortal_operator import Killed
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

Commit = Callable[[], Any]


class CutCommit:
    """Kills an operator at its nth commit: ``before`` it is made, or ``after``.

    ``late``: before, and then it arrives right ahead of the next one, as from a process that has
    outlived its operator. ``too late``: it arrives right after the next one.
    """

    def __init__(self, number: int, moment: str, drivers: Catalog):
        """Commits through the catalog of the ``drivers`` are not the operator's."""
        self._number, self._moment, self._drivers = number, moment, drivers
        self._seen = 0
        self._late: Commit | None = None
        self.struck = False

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stands between every catalog and its database from now on."""
        original = SqlCatalog.commit_table

        def commit_table(catalog: SqlCatalog, *what: Any) -> Any:
            if catalog is self._drivers:
                return original(catalog, *what)
            return self._commit(lambda: original(catalog, *what))

        monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)

    def _commit(self, commit: Commit) -> Any:
        self._seen += 1
        if self._seen != self._number:
            return self._with_late(commit)
        self.struck = True
        if self._moment == "after":
            commit()
        elif self._moment != "before":
            self._late = commit
        raise Killed

    def _with_late(self, commit: Commit) -> Any:
        late, self._late = self._late, None
        if late is None:
            return commit()
        if self._moment == "late":
            late()
            return commit()
        answer = commit()
        with pytest.raises(CommitFailedException):
            late()
        return answer
