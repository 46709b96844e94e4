"""Clients of databases that are not written in Python, whose connections Python's audit hooks do
not see: their functions that connect are checked instead.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from backfill.runtime.switching.late_imports import when_imported

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
    when_imported(_CONNECTING, lambda module: _check(module, check))


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
