"""Runs several applications one after the other in one driver, to save the time Spark takes to
start.

Arguments: files with settings. Prints, for each, a line of JSON: the phase and message of how it
ended.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from backfill.runtime.launch import drive, prepare
from backfill.runtime.queries import run_state
from backfill.runtime.settings import RuntimeSettings

_IDLE_GRACE_SECONDS = 3.0
"""How long an application may wait without a query that it should have. None of these starts one in
a listener, for which a real driver waits longer.
"""
_TURN_SECONDS = 15.0
"""How long an application that works may take to start its next query. A real driver waits for a
minute, which is nothing beside the time that its history takes.
"""


def leave_listeners() -> None:
    """Later applications have the same session, and would tell all listeners of every batch."""
    session = SparkSession._instantiatedSession
    if session is not None:
        streams = session._jsparkSession.streams()
        for listener in streams.listListeners():
            streams.removeListener(listener)


if __name__ == "__main__":
    run_state._TURN_SECONDS = _TURN_SECONDS
    for path in sys.argv[1:]:
        run, agent = prepare(RuntimeSettings.model_validate_json(Path(path).read_bytes()))
        run._idle_grace_seconds = _IDLE_GRACE_SECONDS
        outcome = drive(run, agent)
        for query in run.queries:
            query.handle.stop()
        leave_listeners()
        print(json.dumps([outcome.phase, outcome.reason, outcome.message]), flush=True)
