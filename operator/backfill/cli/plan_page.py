"""Displays a plan."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from backfill.api.quantities import count
from backfill.cli.text import moment, seconds, size
from backfill.planning.plan_summary import MeasuredEstimate, PlanSummary, SourceSummary


def render_plan(name: str, summary: PlanSummary, *, estimated_for: str) -> RenderableType:
    """The plan as a table, with its proof and warnings.

    ``estimated_for`` names the resources that the estimated time is for.
    """
    steps = summary.steps
    about = "about " if any(source.wide_files for source in summary.sources) else ""
    largest = f"{about}{count(steps.most_rows, 'row')}, {size(steps.most_bytes)}"
    stretch = f"{moment(summary.read_from)} to {moment(summary.read_to)} UTC"
    if summary.live:
        stretch = f"{stretch}, where live traffic continues"
    facts = [
        f"  reads {stretch}: {count(summary.rows, 'row')}, {size(summary.bytes)}",
        *_wide_in_words(summary.sources),
        *(
            f"  static table {static.table}: snapshot {static.snapshot_id}"
            for static in summary.static_tables
        ),
        (
            f"  {count(steps.count, 'step')} of up to {seconds(steps.longest_seconds)};"
            f" the largest has {largest}"
        ),
        (
            f"  sources differ by a factor of {summary.rows_skew:,.1f} in rows and"
            f" {summary.bytes_skew:,.1f} in bytes"
        ),
        *([] if summary.measured is None else [_measured_in_words(summary.measured)]),
        (
            f"  estimate {estimated_for}: {seconds(summary.estimated_seconds)}, assuming that"
            " reading takes most of the time"
        ),
        (
            f"  proved: rows at most {seconds(summary.greatest_disorder_seconds)} out of order"
            f" across steps, at most {seconds(summary.greatest_misalignment_seconds)} ahead of the"
            " global watermark"
        ),
    ]
    return Group(
        Text.assemble((name, "bold"), (f"  plan {summary.plan_id}", "dim")),
        _sources(summary.sources),
        *(Text(fact) for fact in facts),
        *_completeness(summary.sources),
        *(Text(f"  warning: {warning}", style="yellow") for warning in summary.warnings),
    )


def _measured_in_words(measured: MeasuredEstimate) -> str:
    runs = count(len(measured.backfills), "earlier backfill")
    return (
        f"  estimate from {runs} of this application ({', '.join(measured.backfills)}; read"
        f" {size(measured.bytes_read)}): {seconds(measured.seconds)},"
        f" {measured.executor_seconds / 3_600:,.2f} executor hours, with the same number of"
        " executors"
    )


def _wide_in_words(sources: tuple[SourceSummary, ...]) -> list[str]:
    wide = sum(source.wide_files for source in sources)
    return (
        [f"  {count(wide, 'wide file')}, with rows of several steps: each step reads its part"]
        if wide
        else []
    )


def _completeness(sources: tuple[SourceSummary, ...]) -> list[Text]:
    """Whether the tables have everything that is read."""
    words = {True: "complete", False: "incomplete", None: "possibly complete"}
    return [
        Text(f"    note: {reason}", style="dim")
        if number and source.complete
        else Text(
            f"  input of {source.name} is {words[source.complete]}: {reason}",
            style="yellow" if source.complete is False else "",
        )
        for source in sources
        for number, reason in enumerate(source.completeness)
    ]


def _sources(sources: tuple[SourceSummary, ...]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 1))
    table.add_column("source", overflow="fold")
    for column in ("files", "wide", "rows", "size"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("first (UTC)", "last (UTC)"):
        table.add_column(column, no_wrap=True)
    for source in sources:
        table.add_row(
            source.name,
            f"{source.files:,}",
            f"{source.wide_files:,}",
            f"{source.rows:,}",
            size(source.bytes),
            moment(source.first) if source.first else "",
            moment(source.last) if source.last else "",
        )
    return table
