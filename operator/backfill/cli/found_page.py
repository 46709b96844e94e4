"""Displays what was found of an application whose Backfill does not say it."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from backfill.api.backfill import Backfill
from backfill.api.resolved import Resolved
from backfill.api.spec import BackfillSpec
from backfill.cli.proposal.manifest import lines
from backfill.cli.text import say
from backfill.controller.proposing.commented import Commented

_SHOWN = ("window", "sources", "staticTables", "ordering", "outputs", "ignoredQueries")
_HEAD = "found by running the main program; to change any of it, write all of it into the spec:"


def say_found(backfill: Backfill, console: Console) -> None:
    """Prints what was found for a complete spec, if anything was."""
    if (found := backfill.status.resolved) is not None:
        say(console, found_text(backfill.spec, found))


def found_text(spec: BackfillSpec, found: Resolved) -> str:
    """The fields of a complete spec that were found, as YAML with the reason for each value."""
    written = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    reasons: dict[str, tuple[str, ...]] = {}
    for origin in found.origins:
        reasons[origin.field] = (*reasons.get(origin.field, ()), origin.why)
    shown = {key: written[key] for key in _SHOWN if key in written}
    return "\n".join((_HEAD, *lines(_commented(shown, "spec", reasons), 2), ""))


def found_figures(backfill: Backfill) -> dict[str, object]:
    """The same for JSON: field ``resolved``, if anything was found."""
    found = backfill.status.resolved
    return {} if found is None else {"resolved": found.to_manifest()}


def _commented(value: Any, place: str, reasons: Mapping[str, tuple[str, ...]]) -> Any:
    """A value with the reasons for it, and for all that is in it."""
    if isinstance(value, dict):
        inner: Any = {
            key: _commented(each, f"{place}.{key}", reasons) for key, each in value.items()
        }
    elif isinstance(value, list):
        inner = [
            _commented(each, f"{place}[{number}]", reasons) for number, each in enumerate(value)
        ]
    else:
        inner = value
    return Commented(inner, reasons[place]) if place in reasons else inner
