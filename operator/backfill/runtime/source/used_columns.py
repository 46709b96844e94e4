"""The columns that queries use, passed to the sources by a small file on the driver's own disk.

A source promises Spark all columns of its table before there is a query. Reading, decoding and
passing on unused columns would be most of the work on wide tables, so sources return nulls for
them.
"""

import json
from pathlib import Path

from backfill.protocol.atomic_files import replace_file


def used_columns_path(scratch: str, source: str) -> Path:
    """The file of a source in a driver's scratch directory."""
    return Path(scratch) / f"columns-{source}.json"


def add_used_columns(path: Path, columns: set[str]) -> None:
    """Adds the columns that another query uses. Call it before the query starts."""
    known = read_used_columns(path) or frozenset()
    replace_file(path, json.dumps(sorted(known | columns)).encode(), durable=False)


def read_used_columns(path: Path) -> frozenset[str] | None:
    """The columns that all queries so far use;
    None if that is unknown, and everything must be read.
    """
    try:
        return frozenset(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
