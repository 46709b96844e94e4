"""The log of a driver on a cluster."""

import time
from collections.abc import Iterator

from rich.console import Console

from backfill.api.backfill import Attempt, Backfill
from backfill.api.errors import BackfillError, BadInput, Problem
from backfill.cli.cluster.place import Place
from backfill.cli.ending import SUCCEEDED
from backfill.controller.backends.pod_template import container_name
from backfill.controller.kubernetes.errors import NotFound, Refused
from backfill.controller.kubernetes.names import attempt_labels
from backfill.controller.kubernetes.resources import POD, Manifest

_POLL_SECONDS = 1.0
_ROLE = {"spark-role": "driver"}
"""The label that Spark itself puts on drivers."""


def show_log(place: Place, name: str, *, attempt: int | None, follow: bool, tail: int | None) -> int:
    """Prints the log of an attempt's driver; the last attempt's unless another is asked for."""
    backfill = place.find(name)
    chosen = _attempt(place, backfill, attempt)
    for line in _lines(place, name, chosen, follow, tail):
        print(line, flush=follow)  # noqa: T201
    return SUCCEEDED


def _attempt(place: Place, backfill: Backfill, number: int | None) -> Attempt:
    name, attempts = backfill.metadata.name, backfill.status.attempts
    if not attempts:
        raise BadInput(Problem("", f"{name} has had no attempt yet", f"see: {place.command('status', name)}"))
    found = next((attempt for attempt in attempts if attempt.number == number), None) if number else attempts[-1]
    if found is None:
        known = ", ".join(str(attempt.number) for attempt in attempts)
        raise BadInput(Problem("--attempt", f"{name} has no attempt {number}", f"it has {known}"))
    return found


def _lines(place: Place, name: str, attempt: Attempt, follow: bool, tail: int | None) -> Iterator[str]:
    told = False
    while True:
        pod = _driver(place, name, attempt.number)
        try:
            if pod is not None:
                logged = place.cluster.log(
                    place.namespace, pod["metadata"]["name"], container=container_name("driver"), tail_lines=tail, follow=follow
                )
                yield from logged
                return
            why = f"there is no driver pod of attempt {attempt.number}"
        except (NotFound, Refused) as error:  # its container has not started
            why = str(error)
        if not follow or attempt.outcome != "Running":
            raise BackfillError(f"{why}{_what_is_known(attempt)}")
        if not told:
            Console(stderr=True).print(f"{why}; waits for it", highlight=False, markup=False, soft_wrap=True)
        told = True
        time.sleep(_POLL_SECONDS)


def _driver(place: Place, name: str, attempt: int) -> Manifest | None:
    """The newest pod: a Spark operator that was killed at the wrong moment may have made two."""
    pods = place.cluster.list(POD, place.namespace, labels=attempt_labels(name, attempt) | _ROLE).items
    return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)


def _what_is_known(attempt: Attempt) -> str:
    if attempt.outcome == "Running":
        return "; it is not started yet, or its pod is gone; wait for it with -f"
    return f"; it {attempt.outcome.lower()}" + (f": {attempt.message}" if attempt.message else "")
