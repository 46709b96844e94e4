"""Prints how each query of an application would be run."""

from rich.console import Console
from rich.table import Table

from backfill.api.backfill import Backfill
from backfill.api.status import execution_in_words
from backfill.cli.text import seconds
from backfill.controller.decisions.run.execution_messages import too_short
from backfill.protocol.explanation import FIRST_OF_MANY, NOT_COMPARED, ExplainedQuery


def render_queries(
    backfill: Backfill, queries: tuple[ExplainedQuery, ...], console: Console
) -> None:
    """Prints how each query would be run."""
    table = Table(box=None, header_style="dim", padding=(0, 1))
    for column in ("query", "output", "execution"):
        table.add_column(column, overflow="fold")
    for column in ("look-back", "look-ahead"):
        table.add_column(column, justify="right", no_wrap=True)
    for query in queries:
        reach = ("" if each is None else seconds(each) for each in _reach(query))
        table.add_row(query.query, query.output or "by foreachBatch", query.execution, *reach)
    console.print(table)
    for query in queries:
        reads = (f"{source} ({', '.join(columns)})" for source, columns in query.reads.items())
        _say(console, f"  {query.query} reads {', '.join(reads)}")
        if query.execution_reason:
            how = execution_in_words(query.execution, query.execution_reason)
            _say(console, f"  {query.query} {how}")
        if query.output_mode is not None:
            _say(console, f"  the result of {query.query} is {_kept(backfill, query)}")
        for warning in warnings(backfill, query):
            _say(console, f"  warning: {query.query}: {warning}", style="yellow")


def warnings(backfill: Backfill, query: ExplainedQuery) -> list[str]:
    """What the window is too short for, and what could be wrong unnoticed."""
    found = too_short(*_reach(query), backfill.spec.window)
    found += [NOT_COMPARED] if query.compared is False else []
    found += [FIRST_OF_MANY] if query.drops_within_watermark else []
    return [*found, *query.warnings]


def _kept(backfill: Backfill, query: ExplainedQuery) -> str:
    """Which of the rows that a stream changes are its result."""
    if query.output_mode == "complete":
        return "the output of its last micro-batch (output mode complete)"
    keys = next(each.keys for each in backfill.spec.outputs if each.name == query.output)
    return f"the newest row of each {', '.join(keys)} (output mode update)"


def _reach(query: ExplainedQuery) -> tuple[float | None, float | None]:
    return query.look_back_seconds, query.look_ahead_seconds


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, highlight=False, markup=False)
