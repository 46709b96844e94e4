"""The operator's commits to the catalog, of which some are cut."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from mortal_operator import Killed
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

Commit = Callable[[], Any]


class CutCommits:
    """Kills an operator at some of the commits: ``before`` one is made, or ``after``.

    ``late``: before, and then it arrives right ahead of the next one, as from a process that has
    outlived its operator. ``too late``: it arrives right after the next one.
    """

    def __init__(self, numbers: Iterable[int], moment: str, drivers: Catalog):
        """``numbers``: how many are made before those that are cut. Commits through the catalog of
        the ``drivers`` are not the operator's.
        """
        self._numbers, self._moment, self._drivers = set(numbers), moment, drivers
        self._late: Commit | None = None
        self.made = 0
        self.struck: list[int] = []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stands between every catalog and its database from now on."""
        original = SqlCatalog.commit_table

        def commit_table(catalog: SqlCatalog, *what: Any) -> Any:
            if catalog is self._drivers:
                return original(catalog, *what)
            return self._commit(lambda: original(catalog, *what))

        monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)

    def _commit(self, original: Commit) -> Any:
        def commit() -> Any:
            answer = original()
            self.made += 1
            return answer

        if self.made not in self._numbers or self.made in self.struck:
            return self._with_late(commit)
        self.struck.append(self.made)
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
