"""The end of a query that has committed its flush:
it is stopped, and its open results are counted.
"""

import logging

from backfill.planning.plan import read_header
from backfill.runtime.queries.logical_plan import watermark_delay_us
from backfill.runtime.queries.open_at_end import open_results
from backfill.runtime.queries.result_times import shape
from backfill.runtime.queries.run_state import Run, StartedQuery
from backfill.runtime.queries.tracker import OpenResults

_log = logging.getLogger(__name__)


def close_query(query: StartedQuery, run: Run) -> None:
    """Stops a query that has committed everything,
    and records the results that its state still holds.

    Raises:
        Py4JError, OSError: Spark has ended.
        Exception: the query cannot be stopped.
    """
    query.handle.stop()
    if query.finish is not None:
        query.finish()
    if run.settings.hand_off is not None:
        # open results continue with live traffic
        run.tracker.record_open_results(query.name, OpenResults(count=0))
        return
    found = query.batch.open_results if query.batch is not None else _open_results(query, run)
    run.tracker.record_open_results(query.name, found)


def _open_results(query: StartedQuery, run: Run) -> OpenResults:
    """The open results. A failure to count them does not fail a run that has committed everything,
    unless Spark has ended: then the next attempt can count them.
    """
    try:
        results, delay_us = shape(query.frame, _time(query, run)), watermark_delay_us(query.frame)
        settled_us = None
        if query.changes:
            header = read_header(run.settings.plan_workspace)
            settled_us = header.inputs.read_end_us - delay_us
        return open_results(
            query.frame.sparkSession,
            query.checkpoint,
            run.settings.window,
            delay_us,
            results,
            settled_us=settled_us,
        )
    except Exception:
        _log.exception("open results of the query %s could not be counted", query.name)
        # raises if Spark has ended; errors during its end look like any other
        query.handle.exception()
        return OpenResults(
            unknown="counting them in the query's state failed; see the driver's log"
        )


def _time(query: StartedQuery, run: Run) -> str | None:
    """The column of its results' time. For a function, which may write other columns, it is that of
    its outputs if they have the same one.
    """
    times = {
        output.timestamp_column
        for output in run.settings.outputs
        if run.writers.get(output.name) == query.name
    }
    return next(iter(times)) if len(times) == 1 else None
