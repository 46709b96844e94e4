"""Kopf with the operator's handlers for what it watches, in a thread of the test's own process.
Nothing is reconciled.
"""

import asyncio
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import kopf

from backfill.controller.manager import handlers
from backfill.controller.manager.events import Recorder
from backfill.controller.manager.listing import Watched
from backfill.controller.manager.login import Login

_STOP_SECONDS = 10.0


class Watches:
    """Begins at once."""

    def __init__(self, watched: Sequence[Watched], namespace: str, login: Login):
        self.recorder = Recorder()
        self.error: BaseException | None = None
        """Why it ended by itself."""
        self._operator: Any = SimpleNamespace(
            login=login,
            recorder=self.recorder,
            cache_of={kind.resource: kind.cache for kind in watched},
        )
        self._watched = watched
        self._namespace = namespace
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="watches", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        if self.alive:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
        kopf.on.login(registry=registry)(handlers.log_in)
        for kind in self._watched:
            resource = kind.resource
            kopf.on.event(resource.group, resource.version, resource.plural, registry=registry)(
                handlers.changed
            )
        handlers.configure(settings, self._watched, "replica-0")
        try:
            kopf.run(
                loop=self._loop,
                registry=registry,
                settings=settings,
                memo=kopf.Memo(operator=self._operator),
                identity=handlers._IDENTITY,
                standalone=True,
                namespaces=[self._namespace],
                stop_flag=self._stop,
            )
        except Exception as error:
            self.error = error
