"""Names of tables beside those of topics and queries, and names of sources and outputs."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, count
from typing import TypeVar

from backfill.api.field_types import as_input_name
from backfill.controller.proposing.proposed import ProposedOutput, ProposedSource

_Named = TypeVar("_Named", ProposedSource, ProposedOutput)


def rank_of(wanted: str, table: str) -> int | None:
    """How well a table's name matches that of a topic or query, 0 being best; None if not."""
    _, *names = table.split(".")
    full, last = normal("_".join(names)), normal(names[-1])
    whole, part = normal(wanted), normal(re.split(r"[./]", wanted.rstrip("/"))[-1])
    if whole in {full, last}:
        return 0
    return 1 if part == last else None


def normal(name: str) -> str:
    """A name in lower case, with ``_`` between its words."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def valid_name(text: str) -> str:
    """A valid name of a source or output."""
    return as_input_name(text) or "unnamed"


def uniquely_named(each: Sequence[_Named]) -> list[_Named]:
    """The same, with a number after a name that is taken."""
    found: dict[str, _Named] = {}
    for one in each:
        names = (f"{one.name[:60]}-{number}" for number in count(2))
        name = next(name for name in chain((one.name,), names) if name not in found)
        found[name] = replace(one, name=name)
    return list(found.values())
