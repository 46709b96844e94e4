"""The log of a driver on a cluster."""

import time
from collections.abc import Iterator

from backfill.api.errors import BackfillError
from backfill.api.status import Attempt
from backfill.cli.backfill_view import attempt_numbered
from backfill.cli.cluster.connection import Place
from backfill.cli.exit_status import SUCCEEDED
from backfill.cli.text import warn
from backfill.controller.children.driver_state import driver_state
from backfill.controller.children.pod_template import container_name
from backfill.kube.object_names import attempt_labels
from backfill.kube.request_errors import NotFound, Refused
from backfill.kube.resources import POD, Manifest

_POLL_SECONDS = 1.0
_ROLE = {"spark-role": "driver"}
"""Label that Spark puts on drivers."""


def show_log(
    place: Place, name: str, *, attempt: int | None, follow: bool, tail: int | None
) -> int:
    """Prints the log of an attempt's driver, by default the last one's."""
    backfill = place.find(name)
    see = f"see: {place.command('status', backfill.metadata.name)}"
    chosen = attempt_numbered(backfill, attempt, see)
    for line in _lines(place, name, chosen, follow, tail):
        print(line, flush=follow)  # noqa: T201
    return SUCCEEDED


def _lines(
    place: Place, name: str, attempt: Attempt, follow: bool, tail: int | None
) -> Iterator[str]:
    last = ""
    while True:
        pod = _driver(place, name, attempt.number)
        why = _silence(pod, attempt.number)
        if pod is not None and not why:
            try:
                yield from _log(place, pod["metadata"]["name"], follow, tail)
                return
            except (NotFound, Refused) as error:  # it has gone, or its container has not started
                why = str(error)
        if not follow or attempt.outcome != "Running":
            raise BackfillError(f"{why}{_what_is_known(attempt)}")
        if why != last:
            warn(f"{why}; waiting for the driver")
        last = why
        time.sleep(_POLL_SECONDS)


def _silence(pod: Manifest | None, attempt: int) -> str:
    """Why there can be no log.

    For a pod without a node, the API server answers as if its log were empty.
    """
    if pod is None:
        return f"attempt {attempt} has no driver pod"
    state = driver_state(None, pod)
    if state.phase != "Pending":
        return ""
    return f"the driver of attempt {attempt} has not started: {state.reason}" + (
        f", {state.message}" if state.message else ""
    )


def _log(place: Place, pod: str, follow: bool, tail: int | None) -> Iterator[str]:
    return place.cluster.log(
        place.namespace, pod, container=container_name("driver"), tail_lines=tail, follow=follow
    )


def _driver(place: Place, name: str, attempt: int) -> Manifest | None:
    """The newest pod: a Spark operator that was killed may have created two."""
    pods = place.cluster.list(
        POD, place.namespace, labels=attempt_labels(name, attempt) | _ROLE
    ).items
    return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)


def _what_is_known(attempt: Attempt) -> str:
    if attempt.outcome == "Running":
        return "; use -f to wait for the driver"
    ended = f"; the attempt {attempt.outcome.lower()}"
    return ended + (f": {attempt.message}" if attempt.message else "")
