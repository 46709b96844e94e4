"""Lists what Kopf watches, at the start and at intervals: a watch that has to start again does not
tell what was deleted in the meantime.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from backfill.kube.cache import Cache
from backfill.kube.client import Cluster, Labels
from backfill.kube.request_errors import ClusterError, KindMissing
from backfill.kube.resources import Resource

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

    def list_once(self) -> None:
        """Puts all objects into the caches, and removes those that no longer exist.

        Raises:
            ClusterError: a list failed.
        """
        served = frozenset(watched.resource for watched in self._watched if self._list(watched))
        if served != self.served:
            missing = {watched.resource for watched in self._watched} - served
            names = ", ".join(sorted(f"{kind.plural} of {kind.group}" for kind in missing))
            _LOG.info("not installed here: %s", names or "nothing that is needed")
        self.served = served

    def keep_on(self, stop: threading.Event, on_new_kinds: Callable[[], None]) -> None:
        """Lists at intervals until ``stop`` is set.

        Calls ``on_new_kinds`` when a kind was added or removed.
        """
        while not stop.wait(RELIST_SECONDS):
            before = self.served
            try:
                self.list_once()
            except ClusterError as error:
                _LOG.warning("could not list all resources; retrying: %s", error)
            if self.served != before:
                on_new_kinds()

    def _list(self, watched: Watched) -> bool:
        try:
            places: Sequence[str | None] = self._namespaces or (None,)
            essence = watched.cache.essence
            listings = [
                self._cluster.list(watched.resource, place, labels=watched.labels, essence=essence)
                for place in places
            ]
        except KindMissing:
            return False
        oldest = min((listing.resource_version for listing in listings), key=int)
        watched.cache.replace((item for listing in listings for item in listing.items), oldest)
        return True
