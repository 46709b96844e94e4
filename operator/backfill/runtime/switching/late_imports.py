"""Changes modules that a program imports, when it does."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Collection, Sequence
from types import ModuleType

Change = Callable[[ModuleType], None]


def when_imported(names: Collection[str], change: Change) -> None:
    """Calls ``change`` with each of these modules once it is loaded, or now if it is."""
    for name in names:
        if name in sys.modules:
            change(sys.modules[name])
    sys.meta_path.insert(0, _Finder(names, change))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds these modules as others do, and changes them once they are loaded."""

    def __init__(self, names: Collection[str], change: Change):
        self._names = names
        self._change = change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._names:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is not None and found.loader is not None:
            load = found.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._change(module)

            found.loader.exec_module = exec_module  # type: ignore[method-assign]
        return found
