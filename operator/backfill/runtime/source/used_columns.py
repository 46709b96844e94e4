"""Which columns the queries use, told to the sources as releases are: by a small file on the
driver's own disk.

A source promises Spark all columns of its table before any query exists. Reading, decoding and
handing over those that no query looks at would be most of the work on wide tables, so sources give
nulls in their place.
"""

import json
from pathlib import Path

from backfill.protocol.atomic_files import replace_file


def used_columns_path(scratch: str, source: str) -> Path:
    """The file of one source, of the driver whose scratch directory this is."""
    return Path(scratch) / f"columns-{source}.json"


def add_used_columns(path: Path, columns: set[str]) -> None:
    """Adds what one more query uses. It must be told before the query starts."""
    known = read_used_columns(path) or frozenset()
    replace_file(path, json.dumps(sorted(known | columns)).encode(), durable=False)


def read_used_columns(path: Path) -> frozenset[str] | None:
    """What all queries so far use; None where nobody told, and everything has to be read."""
    try:
        return frozenset(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
