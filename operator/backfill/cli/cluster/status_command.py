"""Status of the Backfills on a cluster, once or until it no longer changes."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import NoReturn, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError
from backfill.cli.backfill_view import View
from backfill.cli.cluster.advice import at_rest, next_step
from backfill.cli.cluster.connection import Place, read, read_outline
from backfill.cli.exit_status import SUCCEEDED
from backfill.cli.result_json import result
from backfill.cli.run_end import exit_status
from backfill.cli.screen import Lines
from backfill.cli.status_pages import details, listing, outcome
from backfill.cli.text import warn
from backfill.kube.request_errors import Unreachable
from backfill.kube.resources import Manifest

_NO_EDGE = 1000
_ONE_SECONDS = 1.0
_ALL_SECONDS = 3.0

_Found = TypeVar("_Found")
_Show = Callable[[Backfill], None]


def show_one(place: Place, name: str, *, as_json: bool) -> int:
    """Shows one Backfill in full."""
    backfill = place.find(name)
    if as_json:
        _print_document(backfill, place)
    else:
        Console().print(_page(backfill, place), crop=False)
    return SUCCEEDED


def show_all(place: Place, *, everywhere: bool, as_json: bool) -> int:
    """Shows a line for each Backfill."""
    found = place.backfills(everywhere=everywhere)
    if as_json:
        for backfill in _readable(found, read):
            _print_document(backfill, place)
    else:
        _wide_console().print(_table(found, place, everywhere=everywhere), crop=False)
    return SUCCEEDED


def _wide_console() -> Console:
    """Standard output, without a line width if it is no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=_NO_EDGE)


def _page(backfill: Backfill, place: Place) -> RenderableType:
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


def _table(found: list[Manifest], place: Place, *, everywhere: bool) -> RenderableType:
    """Several Backfills for people."""
    if found:
        return listing(_readable(found, read_outline), namespaces=everywhere)
    return (
        "no backfills in any namespace"
        if everywhere
        else f"no backfills in namespace {place.namespace}; look in all with -A"
    )


def _print_document(backfill: Backfill, place: Place) -> None:
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


def _readable(found: list[Manifest], reader: Callable[[Manifest], Backfill]) -> list[Backfill]:
    """The Backfills that ``reader`` can read. Others are reported on standard error."""
    backfills = []
    for each in found:
        try:
            backfills.append(reader(each))
        except BackfillError as error:
            warn(f"warning: {error}")
    return sorted(
        backfills, key=lambda backfill: (backfill.metadata.namespace, backfill.metadata.name)
    )


def follow_one(place: Place, name: str, *, as_json: bool) -> int:
    """Shows the progress of a Backfill until it is at rest or removed, and returns its exit status.

    While the API server is unavailable, it waits without a time limit.
    """
    backfill = place.find(name)
    uid, version = backfill.metadata.uid, ""
    with _shown(place, as_json) as show:
        while True:
            found = patiently(lambda: place.look(name))
            if found is None or found["metadata"]["uid"] != uid:
                warn(f"{name}: removed")
                return SUCCEEDED
            backfill = read(found)
            if not as_json or version != found["metadata"]["resourceVersion"]:
                show(backfill)
            version = found["metadata"]["resourceVersion"]
            if at_rest(backfill):
                return exit_status(backfill)
            time.sleep(_ONE_SECONDS)


def follow_all(place: Place, *, everywhere: bool, as_json: bool) -> NoReturn:
    """Shows a line for each Backfill, and updates it until Ctrl-C.

    With JSON output, prints a line for each change instead.
    """
    if as_json:
        _print_changes(place, everywhere)
    with Live(auto_refresh=False) as live:
        while True:
            found = patiently(lambda: place.backfills(everywhere=everywhere))
            live.update(_table(found, place, everywhere=everywhere), refresh=True)
            time.sleep(_ALL_SECONDS)


def _print_changes(place: Place, everywhere: bool) -> NoReturn:
    versions: dict[str, str] = {}
    while True:
        found = patiently(lambda: place.backfills(everywhere=everywhere))
        changed = [
            each
            for each in found
            if versions.get(each["metadata"]["uid"]) != each["metadata"]["resourceVersion"]
        ]
        versions = {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in found}
        for backfill in _readable(changed, read):
            _print_document(backfill, place)
        time.sleep(_ALL_SECONDS)


@contextmanager
def _shown(place: Place, as_json: bool) -> Iterator[_Show]:
    """Writes the page of a Backfill as it changes.

    On a terminal the page is live, and its last state remains. Otherwise changes are printed as
    lines, followed by the whole page at the end, or as JSON.
    """
    console = Console()
    if as_json:
        yield lambda backfill: _print_document(backfill, place)
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda backfill: live.update(_page(backfill, place), refresh=True)
    else:
        yield _in_lines(Lines(console), console, place)


def _in_lines(lines: Lines, console: Console, place: Place) -> _Show:
    def show(backfill: Backfill) -> None:
        if at_rest(backfill):
            console.print(_page(backfill, place), crop=False)
        else:
            lines.show(View(backfill, datetime.now(UTC)))

    return show


def patiently(look: Callable[[], _Found]) -> _Found:
    """What is found, once the API server answers. Until then, says once that it does not."""
    reported = False
    while True:
        try:
            return look()
        except Unreachable as error:
            if not reported:
                warn(f"{error}; retrying")
            reported = True
            time.sleep(_ONE_SECONDS)
