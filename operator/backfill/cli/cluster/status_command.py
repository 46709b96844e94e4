"""Status of the Backfills on a cluster."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError
from backfill.cli.backfill_view import View
from backfill.cli.cluster.advice import next_step
from backfill.cli.cluster.connection import Place, read, read_outline
from backfill.cli.exit_status import SUCCEEDED
from backfill.cli.result_json import result
from backfill.cli.status_pages import details, listing, outcome
from backfill.kube.resources import Manifest

_NO_EDGE = 1000


def show_one(place: Place, name: str, *, as_json: bool) -> int:
    """Shows one Backfill in full."""
    backfill = place.find(name)
    if as_json:
        print_document(backfill, place)
    else:
        Console().print(page(backfill, place), crop=False)
    return SUCCEEDED


def show_all(place: Place, *, everywhere: bool, as_json: bool) -> int:
    """Shows a line for each Backfill."""
    found = place.backfills(everywhere=everywhere)
    if as_json:
        for backfill in readable(found, read):
            print_document(backfill, place)
    else:
        wide_console().print(table(found, place, everywhere=everywhere), crop=False)
    return SUCCEEDED


def wide_console() -> Console:
    """Standard output, without a line width if it is no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=_NO_EDGE)


def page(backfill: Backfill, place: Place) -> RenderableType:
    """A Backfill for people, with what to do next.

    Commands are on lines of their own, to be copied.
    """
    now = datetime.now(UTC)
    advice = next_step(backfill, place, now)
    parts = [details(View(backfill, now))]
    if advice is not None:
        parts.append(Padding(Text(f"→ {advice.what}", style="bold"), (0, 0, 0, 2)))
        parts += [
            Text(f"    {command}", no_wrap=True, overflow="ignore") for command in advice.commands
        ]
    return Group(*parts)


def table(found: list[Manifest], place: Place, *, everywhere: bool) -> RenderableType:
    """Several Backfills for people."""
    if found:
        return listing(readable(found, read_outline), namespaces=everywhere)
    return (
        "no backfills in any namespace"
        if everywhere
        else f"no backfills in namespace {place.namespace}; look in all with -A"
    )


def print_document(backfill: Backfill, place: Place) -> None:
    """A Backfill for programs, on one line: the result so far, the stage, and what to do next."""
    now, status = datetime.now(UTC), backfill.status.to_manifest()
    advice = next_step(backfill, place, now)
    known = result(backfill) | {
        "namespace": backfill.metadata.namespace,
        "stage": outcome(View(backfill, now)),
        "watermark": status.get("watermark"),
        "progress": status["progress"],
        "attempts": status.get("attempts", []),
        "nextStep": asdict(advice) if advice else None,
    }
    print(json.dumps(known, separators=(",", ":")), flush=True)  # noqa: T201


def readable(found: list[Manifest], reader: Callable[[Manifest], Backfill]) -> list[Backfill]:
    """The Backfills that ``reader`` can read. Others are reported on standard error."""
    backfills = []
    for each in found:
        try:
            backfills.append(reader(each))
        except BackfillError as error:
            Console(stderr=True).print(
                f"warning: {error}", highlight=False, markup=False, soft_wrap=True
            )
    return sorted(
        backfills, key=lambda backfill: (backfill.metadata.namespace, backfill.metadata.name)
    )
