"""The end of a query that has committed its flush: it is stopped, and its open results are
counted. Then all that is staged must be of queries that have run.
"""

import logging

from backfill.api.errors import UnsupportedProgram
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.staging import read_staged
from backfill.planning.plan import read_header
from backfill.runtime.catalyst import analyzed
from backfill.runtime.queries.logical_plan import closing_delay_us, gives_at_once
from backfill.runtime.queries.open_at_end import open_results
from backfill.runtime.queries.result_times import shape
from backfill.runtime.queries.run_state import Run, StartedQuery, not_started_again
from backfill.runtime.queries.tracker import OpenResults
from backfill.runtime.spark_versions import NO_STATE_READER

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


def check_all_started(run: Run) -> None:
    """Checks that the program has started all queries whose rows are staged.

    Raises:
        UnsupportedProgram: an earlier attempt has staged rows of another one.
        BadInput: the branch of an output holds something else.
    """
    started, catalogs = {query.name for query in run.queries}, Catalogs()
    for output in run.settings.outputs:
        table = catalogs.load_table(output.table, "spec.outputs")
        staged = read_staged(table.metadata, run.settings.result(output.name))
        if gone := sorted(set(staged.parts) - started) if staged else []:
            raise UnsupportedProgram([not_started_again(each, output.name) for each in gone])


def _open_results(query: StartedQuery, run: Run) -> OpenResults:
    """The open results. A failure to count them does not fail a run that has committed everything,
    unless Spark has ended: then the next attempt can count them.
    """
    if NO_STATE_READER:
        at_once = gives_at_once(analyzed(query.frame))
        return OpenResults(count=0) if at_once else OpenResults(unknown=NO_STATE_READER)
    try:
        results, delay_us = shape(query.frame, _time(query, run)), closing_delay_us(query.frame)
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
        if query.name in run.writers.get(output.name, ())
    }
    return next(iter(times)) if len(times) == 1 else None
