"""Checks that optional dependencies are installed:
the command line alone has no library for tables.
"""

from importlib.util import find_spec

from backfill.api.errors import BackfillError

TABLES = ("numpy", "pyarrow", "pyiceberg")
SPARK = "pyspark"


def require(*libraries: str) -> None:
    """Checks that libraries can be imported, without importing them.

    Raises:
        BackfillError: one is missing; says what to install.
    """
    for library in libraries:
        if find_spec(library) is None:
            raise BackfillError(
                f"{library} is not installed; to work on this machine, run: pip install"
                " 'backfill-operator[local]'"
            )
