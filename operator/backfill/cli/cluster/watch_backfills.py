"""Watches Backfills on a cluster."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NoReturn, TypeVar

from rich.console import Console
from rich.live import Live

from backfill.api.backfill import Backfill
from backfill.cli.backfill_view import View
from backfill.cli.cluster.advice import at_rest
from backfill.cli.cluster.connection import Place, read
from backfill.cli.cluster.status_command import page, print_document, readable, table
from backfill.cli.exit_status import SUCCEEDED
from backfill.cli.run_end import exit_status
from backfill.cli.screen import Lines
from backfill.kube.request_errors import Unreachable

_ONE_SECONDS = 1.0
_ALL_SECONDS = 3.0

_Found = TypeVar("_Found")
_Show = Callable[[Backfill], None]


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
                _print(f"{name}: removed")
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
            live.update(table(found, place, everywhere=everywhere), refresh=True)
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
        for backfill in readable(changed, read):
            print_document(backfill, place)
        time.sleep(_ALL_SECONDS)


@contextmanager
def _shown(place: Place, as_json: bool) -> Iterator[_Show]:
    """Writes the page of a Backfill as it changes.

    On a terminal the page is live, and its last state remains. Otherwise changes are printed as
    lines, followed by the whole page at the end, or as JSON.
    """
    console = Console()
    if as_json:
        yield lambda backfill: print_document(backfill, place)
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda backfill: live.update(page(backfill, place), refresh=True)
    else:
        yield _in_lines(Lines(console), console, place)


def _in_lines(lines: Lines, console: Console, place: Place) -> _Show:
    def show(backfill: Backfill) -> None:
        if at_rest(backfill):
            console.print(page(backfill, place), crop=False)
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
                _print(f"{error}; retrying")
            reported = True
            time.sleep(_ONE_SECONDS)


def _print(text: str) -> None:
    Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)
