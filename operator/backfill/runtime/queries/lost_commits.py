"""Finds commits that Spark has made and not reported. A progress event may be lost, and none
follows the last batch.
"""

import logging
import threading
import time

from backfill.protocol.split_assignment import QueryProgress
from backfill.runtime.queries.earlier_attempts import checkpoint_of, committed_steps
from backfill.runtime.queries.run_state import Run, StartedQuery

_SILENCE_SECONDS = 10.0

_log = logging.getLogger(__name__)


class LostCommits:
    """Reads the checkpoints, which are authoritative,
    if no query has reported anything for some time.

    A commit that is found counts only if it is still unreported at the next check: its report may
    be on its way, and says more, such as late rows and times.
    """

    def __init__(self, run: Run, silence_seconds: float = _SILENCE_SECONDS):
        self._run = run
        self._silence = silence_seconds
        self._reported: tuple[QueryProgress, ...] = ()
        self._quiet_since = time.monotonic()
        self._looking: threading.Thread | None = None
        self._found: dict[str, int] = {}

    def watch(self) -> None:
        """Checks if it is time. Call it often. It reads in a thread of its own, since the object
        store may be slower than heartbeats allow.
        """
        reported, now = self._run.tracker.queries, time.monotonic()
        if reported != self._reported:
            self._reported, self._quiet_since = reported, now
        elif now - self._quiet_since >= self._silence and (
            self._looking is None or not self._looking.is_alive()
        ):
            self._quiet_since = now
            self._looking = threading.Thread(
                target=self.look, name="backfill-lost-commits", daemon=True
            )
            self._looking.start()

    def look(self) -> None:
        """Counts what the last check has found, and checks again. A checkpoint that cannot be read
        is left for the next time.
        """
        for query in self._run.queries:
            if query.batch is not None:
                continue  # it reports its commits itself
            try:
                self._look_at(query)
            except Exception:
                _log.exception("the commits of the query %s could not be read", query.name)

    def _look_at(self, query: StartedQuery) -> None:
        self._run.tracker.catch_up(query.name, self._found.get(query.name, 0))
        self._found[query.name] = committed_steps(
            checkpoint_of(query.identity, self._run.settings.checkpoint_workspace)
        )
