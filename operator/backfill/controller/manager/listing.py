"""Lists what Kopf watches, at the start and at intervals: a watch that has to start again does not
tell what was deleted in the meantime.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from backfill.kube.cache import Cache
from backfill.kube.client import Cluster, Labels, Listing
from backfill.kube.request_errors import ClusterError, Forbidden, KindMissing
from backfill.kube.resources import BACKFILL, Resource

_LOG = logging.getLogger(__name__)
RELIST_SECONDS: Final = 180.0
"""Interval of lists. A deletion that no watch told of may go unnoticed for this time."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A kind of objects to watch, and the cache that they are kept in."""

    resource: Resource
    cache: Cache
    labels: Labels = field(default_factory=dict)
    """Labels that objects must have."""


class Relisting:
    """Lists all objects."""

    def __init__(self, cluster: Cluster, watched: Sequence[Watched], namespaces: Sequence[str]):
        """``namespaces`` is empty for all of them."""
        self._cluster = cluster
        self._watched = watched
        self._namespaces = namespaces
        self.served: frozenset[Resource] = frozenset()
        """The kinds that the API server knew at the last list."""
        self.refused: frozenset[str] = frozenset()
        """The namespaces that could not be listed, such as those that were deleted together with
        the operator's role in them.
        """

    def list_once(self) -> None:
        """Puts all objects into the caches, and removes those that no longer exist.

        Raises:
            ClusterError: a list failed.
        """
        refused: set[str] = set()
        served = frozenset(
            watched.resource for watched in self._watched if self._list(watched, refused)
        )
        if served != self.served:
            missing = {watched.resource for watched in self._watched} - served
            names = ", ".join(sorted(f"{kind.plural} of {kind.group}" for kind in missing))
            _LOG.info("not installed here: %s", names or "nothing that is needed")
        self.served, self.refused = served, frozenset(refused)

    def keep_on(self, stop: threading.Event, on_change: Callable[[], None]) -> None:
        """Lists at intervals until ``stop`` is set.

        Calls ``on_change`` when a kind or a namespace was added or removed.
        """
        while not stop.wait(RELIST_SECONDS):
            before = self.served, self.refused
            try:
                self.list_once()
            except ClusterError as error:
                _LOG.warning("could not list all resources; retrying: %s", error)
            except Exception:  # nothing else would list any more
                _LOG.exception("could not list all resources; retrying")
            if (self.served, self.refused) != before:
                on_change()

    def _list(self, watched: Watched, refused: set[str]) -> bool:
        try:
            listings = list(self._listings(watched, refused))
        except KindMissing:
            return False
        oldest = min((listing.resource_version for listing in listings), key=int)
        watched.cache.replace((item for listing in listings for item in listing.items), oldest)
        return True

    def _listings(self, watched: Watched, refused: set[str]) -> Iterator[Listing]:
        places: Sequence[str | None] = self._namespaces or (None,)
        for place in places:
            if place in refused:
                continue
            try:
                yield self._cluster.list(
                    watched.resource, place, labels=watched.labels, essence=watched.cache.essence
                )
            except Forbidden as error:
                # without its other objects, a Backfill that is seen would be decided wrongly
                last = len(refused) + 1 == len(places)
                if place is None or last or watched.resource != BACKFILL:
                    raise
                if place not in self.refused:
                    _LOG.warning("namespace %s is left out: %s", place, error)
                refused.add(place)
