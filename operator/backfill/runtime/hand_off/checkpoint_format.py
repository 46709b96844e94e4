"""The files of a checkpoint, as Spark writes them. Does not use Spark.

What is changed in them is the last entry of the offset log: a line each for the query's sources, in
their order.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from backfill.api.errors import BackfillError
from backfill.api.quantities import count
from backfill.runtime.source.clock import read_of_offset

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_FORMAT = "v1"
"""Format of the offset log of a query whose sources have no names of Spark's own."""
_KEPT_ENTRIES = 2
"""Entries of the logs that Spark reads when it starts: the last one and that before."""
_VERSIONED = re.compile(r"(\d+)\.(delta|snapshot|zip|changelog)(\.crc)?")
_WHOLE = {"snapshot", "zip"}
"""Files that have the whole state of a version, not its changes."""


def last_batch(commits: Iterable[str], steps: int) -> int:
    """Number of the last batch of history, the flush after ``steps`` steps, by the names of the
    files in the commit log. Another batch may have begun, which waits for a step that does not
    exist.

    Raises:
        BackfillError: it is not the last one that is committed. Spark would run it again, with the
            new sources and without the rows of the old ones.
    """
    committed = _last(commits)
    if committed != steps:
        raise BackfillError(
            f"the last committed batch of the checkpoint is {committed}, but history has"
            f" {count(steps, 'step')} and a flush; the next attempt commits it"
        )
    return committed


def needed(paths: Iterable[str], batch: int) -> list[str]:
    """The files that a query needs to continue after a batch, of all files of its checkpoint.

    Of state, these are the newest complete version of each partition and the changes since. Files
    of another kind are all needed.
    """
    stores: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    chosen = []
    for path in paths:
        directory, _, name = path.rpartition("/")
        if name.startswith("."):
            continue  # checksums of a local disk, which are written with the copy
        top = directory.split("/", 1)[0]
        versioned = _VERSIONED.fullmatch(name)
        if directory in {"offsets", "commits"}:
            number = re.match(r"\d+", name)
            if number is not None and 0 <= batch - int(number[0]) < _KEPT_ENTRIES:
                chosen.append(path)
        elif top == "state" and versioned:
            stores[directory].append((int(versioned[1]), versioned[2], path))
        elif not top or top == "state":
            chosen.append(path)
    for files in stores.values():
        wanted = [each for each in files if each[0] <= batch + 1]
        whole = max((version for version, kind, _ in wanted if kind in _WHOLE), default=0)
        chosen += [path for version, _, path in wanted if version >= whole]
    return chosen


def is_stateful(paths: Iterable[str]) -> bool:
    """Whether a checkpoint has state."""
    return any(path.startswith("state/") for path in paths)


def conf_of(entry: str) -> dict[str, str]:
    """The Spark properties that an entry of the offset log records."""
    found: dict[str, str] = _metadata(entry).get("conf", {})
    return found


def sources_of(entry: str, steps: int, names: Sequence[str]) -> list[str]:
    """The sources of history in an entry of the offset log, in their order; ``names`` are those of
    the plan's.

    Raises:
        BackfillError: it has another format, or is not that of the flush after ``steps`` steps.
    """
    found = []
    for line in _lines(entry)[2:]:
        try:
            place, step = read_of_offset(line)
            name = names[place]
        except (ValueError, LookupError, TypeError):
            raise BackfillError(
                f"the checkpoint contains an offset that is not one of history: {line}"
            ) from None
        if step != steps + 1:
            raise BackfillError(
                f"the checkpoint has read {count(step, 'step')} of {name}, but history has {steps}"
                " and a flush"
            )
        found.append(name)
    return found


def with_sources(entry: str, lines: Iterable[str], conf: Mapping[str, str]) -> str:
    """An entry of the offset log with other offsets of its sources, in their order, and with some
    properties changed.
    """
    metadata = _metadata(entry)
    metadata["conf"] = {**metadata.get("conf", {}), **conf}
    return "\n".join([_FORMAT, json.dumps(metadata, separators=(",", ":")), *lines])


def _last(names: Iterable[str]) -> int:
    return max(map(int, filter(str.isdigit, names)), default=-1)


def _metadata(entry: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(_lines(entry)[1])
    return found


def _lines(entry: str) -> list[str]:
    lines = entry.split("\n")
    if lines[0] != _FORMAT or len(lines) < 3:
        raise BackfillError(
            f"this version of Spark writes the offset log in the format {lines[0][:20]}, and only"
            f" {_FORMAT} is supported"
        )
    return lines
