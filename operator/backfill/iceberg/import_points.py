"""Guards the places where PyIceberg imports and calls what a property names.

Properties come from tables, from the servers of catalogs and from Secrets, and could name
``builtins.eval`` or ``subprocess.Popen``. In every process, what is named must be a class of the
expected kind. In a process that works for others (:func:`only_registered`), it must also be a known
one; nothing else is even imported.
"""

import importlib
from functools import cache
from typing import Any

import pyiceberg.catalog
import pyiceberg.io
import pyiceberg.io.pyarrow
import pyiceberg.table.locations
from pyarrow.fs import S3RetryStrategy
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerFactory
from pyiceberg.io import FileIO
from pyiceberg.table.locations import LocationProvider

from backfill.iceberg.allowed_local_files import OutOfReach
from backfill.iceberg.untrusted_properties import FILE_IOS, RETRY_STRATEGIES


class _Guard:
    """Whether only known classes may be named."""

    strict = False


def only_registered() -> None:
    """Makes this process, permanently, load nothing that is unknown."""
    _Guard.strict = True


@cache
def close_import_points() -> None:
    """Guards them for everything that uses PyIceberg in this process."""
    io, arrow, locations, catalog = (
        pyiceberg.io,
        pyiceberg.io.pyarrow,
        pyiceberg.table.locations,
        pyiceberg.catalog,
    )
    _guard(io, "_import_file_io", "py-io-impl", FileIO, FILE_IOS)
    _guard(
        arrow, "_import_retry_strategy", "s3.retry-strategy-impl", S3RetryStrategy, RETRY_STRATEGIES
    )
    _guard(
        locations, "_import_location_provider", "write.py-location-provider.impl", LocationProvider
    )
    _guard(catalog, "_import_catalog", "py-catalog-impl", Catalog, named_at=1)
    _guard(
        AuthManagerFactory,
        "create",
        "auth.impl",
        AuthManager,
        frozenset(AuthManagerFactory._registry),
    )


def _guard(
    owner: object,
    function: str,
    name: str,
    kind: type,
    registered: frozenset[str] = frozenset(),
    *,
    named_at: int = 0,
) -> None:
    """Guards a function. ``named_at`` is the argument that names the class."""
    load = getattr(owner, function)

    def checked(*arguments: Any) -> Any:
        if arguments[named_at] not in registered:
            _check(name, str(arguments[named_at]), kind)
        return load(*arguments)

    setattr(owner, function, checked)


def _check(name: str, wanted: str, kind: type) -> None:
    if _Guard.strict:
        raise OutOfReach(f"{name} is {wanted}, and code named in a property is not loaded here")
    module, _, attribute = wanted.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute) if module else None
    except (ImportError, AttributeError):
        return  # PyIceberg reports that itself
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise ValueError(f"{name} is {wanted}, which is not a subclass of {kind.__name__}")
