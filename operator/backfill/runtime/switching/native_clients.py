"""Clients of databases that are not written in Python, whose connections Python's audit hooks do
not see: their functions that connect are checked instead.
"""

import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_CONNECTING = {
    "MySQLdb": "connect",
    "mysql.connector": "connect",
    "psycopg": "connect",
    "psycopg2": "_connect",  # what its connect() calls, under whatever name a program has that
    "pymssql": "connect",
    "pyodbc": "connect",
}
"""By module, the function that connects."""


def check_clients(check: Callable[[], None]) -> None:
    """Calls ``check`` before a client connects, from now on: also one that is imported later."""
    for name in _CONNECTING:
        if name in sys.modules:
            _check(sys.modules[name], check)
    sys.meta_path.insert(0, _Finder(check))


def _check(module: ModuleType, check: Callable[[], None]) -> None:
    name = _CONNECTING[module.__name__]
    original = getattr(module, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def connect(*args: Any, **kwargs: Any) -> Any:
        check()
        return original(*args, **kwargs)

    setattr(module, name, connect)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds these modules as others do, and checks what they have once they are loaded."""

    def __init__(self, check: Callable[[], None]):
        self._check = check

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _CONNECTING:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is not None and found.loader is not None:
            load = found.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _check(module, self._check)

            found.loader.exec_module = exec_module  # type: ignore[method-assign]
        return found
