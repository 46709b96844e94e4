"""The live screen of a run, or lines if there is no terminal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from backfill.api.conditions import Condition, Reason
from backfill.api.output import PublishMode
from backfill.api.quantities import count
from backfill.api.status import SourceStatus
from backfill.cli.backfill_view import View, planning_in_words
from backfill.cli.text import moment, seconds

_REFRESH_SECONDS = 0.1
_LINE_SECONDS = 5.0
_QUIET_SECONDS = 30.0
"""Time after which a line repeats a stage that lasts, so that nobody takes it for stuck."""
_SOURCES_SHOWN = 4
_NAME_WIDTH = 20
"""Longer names are folded, so that bars keep most of a narrow terminal."""
_TROUBLE = {
    Reason.BACKING_OFF,
    Reason.ATTEMPTS_EXHAUSTED,
    Reason.PROGRAM_FAILED,
    Reason.PUBLISH_CONFLICT,
    Reason.PUBLISH_FAILED,
}


class Display(Protocol):
    """Shows a run in progress."""

    def show(self, view: View) -> None:
        """Called after every reconcile, which may be many times a second."""

    def say(self, text: str) -> None:
        """Prints a message that stays on the screen."""


class LiveScreen:
    """Redraws some lines of a terminal in place."""

    def __init__(self, live: Live):
        self._live = live
        self._shown_at = 0.0

    def show(self, view: View) -> None:
        """Redraws at most ten times a second. The last state is drawn when the screen ends."""
        due = time.monotonic() - self._shown_at >= _REFRESH_SECONDS
        self._live.update(render(view), refresh=due)
        if due:
            self._shown_at = time.monotonic()

    def say(self, text: str) -> None:
        """Prints above the screen."""
        self._live.console.print(text, highlight=False, markup=False)


class Lines:
    """Prints a line for each event, and one every few seconds while steps are committed."""

    def __init__(self, console: Console):
        self._console = console
        self._stage: tuple[object, ...] = ()
        self._line = ""
        self._printed_at = 0.0

    def show(self, view: View) -> None:
        """Prints what is new. A failure is printed in full at the end of the run."""
        if view.failed:
            return
        condition = view.stage
        stage = (
            (condition.type, condition.status, condition.reason, condition.message)
            if condition
            else ()
        )
        line = progress_line(view)
        if stage != self._stage and condition is not None:
            self._stage = stage
            self.say(f"{view.name}: {in_words(condition)}")
        elif line != self._line and time.monotonic() - self._printed_at >= _LINE_SECONDS:
            self.say(f"{view.name}: {line}")
        elif condition and time.monotonic() - self._printed_at >= _QUIET_SECONDS:
            self.say(f"{view.name}: {in_words(condition, view.stage_seconds)}")
        else:
            return
        self._line, self._printed_at = line, time.monotonic()

    def say(self, text: str) -> None:
        """Prints a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def display(console: Console) -> Iterator[Display]:
    """A live screen on a terminal, else lines. The last state of the screen stays."""
    if not console.is_terminal:
        yield Lines(console)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield LiveScreen(live)


def progress_line(view: View) -> str:
    """The progress in one line."""
    progress = view.status.progress
    if not view.planned:
        return planning_in_words(view.planning)
    if delivering := view.status.delivering:
        known = ((each.name, each.delivery) for each in delivering)
        return ", ".join(f"{name}: {of.in_words} delivered" for name, of in known if of)
    parts = [
        f"{progress.committed:,} of {count(progress.steps, 'step')}",
        count(progress.rows_read, "row"),
    ]
    if view.status.watermark is not None:
        parts.append(f"watermark {moment(view.status.watermark)} UTC")
    return ", ".join([*parts, *filter(None, (_rate(view), progress.batch_in_words, _rest(view)))])


def _rate(view: View) -> str:
    rate = view.status.progress.rows_per_second
    return f"{rate:,.0f} rows/s" if rate is not None else ""


def _rest(view: View) -> str:
    """How long the rest takes; empty if that is unknown, or nothing is left."""
    progress = view.status.progress
    if progress.eta is None or progress.committed >= progress.steps:
        return ""
    return f"done in about {seconds(max((progress.eta - view.now).total_seconds(), 0))}"


def in_words(condition: Condition, lasted_seconds: float | None = None) -> str:
    """A condition in one line: its reason, how long it has lasted, and the start of its message."""
    first = condition.message.splitlines()[0] if condition.message else ""
    since = "" if lasted_seconds is None else f", {seconds(lasted_seconds)}"
    return f"{condition.reason}{since}: {first}" if first else f"{condition.reason}{since}"


def render(view: View) -> RenderableType:
    """The live screen."""
    if not view.planned:
        before = () if view.failed else (Text(f"  {_before_the_plan(view)}"),)
        return Group(overview(view), *before)
    if view.stage is None:
        return overview(view)
    style = "yellow" if view.stage.reason in _TROUBLE else "dim"
    lines = [Text(in_words(view.stage, view.stage_seconds), style=style)]
    if follows := what_follows(view):
        lines.append(Text(f"then {follows}", style="dim"))
    return Group(overview(view), Padding(Group(*lines), (0, 0, 0, 2)))


def what_follows(view: View) -> str:
    """What a run does after its steps; empty once they are committed, or if it does not go on."""
    progress, spec = view.status.progress, view.backfill.spec
    if view.failed or progress.committed >= progress.steps or view.status.delivering:
        return ""
    publishing = [each for each in spec.outputs if each.publish.mode is not PublishMode.NONE]
    waits = any(output.needs_approval for output in publishing)
    parts = [
        "compares the results" if any(output.validate_ for output in spec.outputs) else "",
        "waits for approval" if waits else "",
        f"publishes {', '.join(each.name for each in publishing)}"
        if publishing and not waits
        else "",
        "hands its state over" if spec.hand_off is not None else "",
    ]
    return ", ".join(filter(None, parts))


def overview(view: View, *, scale: bool = False) -> RenderableType:
    """The progress, optionally with the ``scale`` of the sources' bars."""
    if not view.planned:
        return _title(view)
    return Group(_title(view), _bars(view, scale), *_numbers(view))


def _before_the_plan(view: View) -> str:
    if view.planning is None and view.stage is not None:
        return in_words(view.stage)
    return f"planning: {planning_in_words(view.planning)}"


def _title(view: View) -> RenderableType:
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    several = view.attempt is not None and view.attempt.number > 1
    attempt = f"  attempt {view.attempt.number}" if view.attempt and several else ""
    grid.add_row(
        Text.assemble((view.name, "bold"), (attempt, "dim")),
        Text(seconds(view.elapsed_seconds)),
    )
    return grid


def _bars(view: View, scale: bool) -> RenderableType:
    """Bars for the steps and for the progress of each source.

    All have the same scale of time, so that bars that end at the same column are aligned.
    """
    progress = view.status.progress
    grid = Table.grid(expand=True, padding=(0, 2))
    grid.add_column(overflow="fold", max_width=_NAME_WIDTH)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, min_width=19)
    share = f"{100 * progress.committed // progress.steps:3} %" if progress.steps else ""
    bar = ProgressBar(
        total=max(progress.steps, 1),
        completed=progress.committed,
        complete_style="green",
        finished_style="green",
    )
    grid.add_row("steps", bar, f"{progress.committed:,} of {progress.steps:,} {share}")
    for output in view.status.delivering:
        if (delivery := output.delivery) is not None:
            bar = ProgressBar(max(delivery.batches, 1), delivery.delivered, finished_style="green")
            grid.add_row(output.name, bar, f"{delivery.in_words} delivered")
    slowest_first = sorted(view.status.sources, key=_watermark)
    for source in slowest_first if scale else slowest_first[:_SOURCES_SHOWN]:
        grid.add_row(
            source.name, _lane(view, source), moment(source.watermark) if source.watermark else ""
        )
    if not scale and (folded := slowest_first[_SOURCES_SHOWN:]):
        furthest = folded[-1].watermark
        ahead = f"{count(len(folded), 'source')} further ahead"
        grid.add_row("", Text(ahead, style="dim"), moment(furthest) if furthest else "")
    if scale:
        grid.add_row("", _scale(view), Text("UTC", style="dim"))
    return Padding(grid, (0, 0, 0, 2))


def _watermark(source: SourceStatus) -> tuple[bool, float]:
    """Sorts sources by how far they are."""
    return source.watermark is not None, source.watermark.timestamp() if source.watermark else 0


def _scale(view: View) -> RenderableType:
    """The first and the last time that is read, below the ends of the bars."""
    ends = Table.grid(expand=True, padding=(0, 1, 0, 0), pad_edge=False)
    ends.add_column(style="dim", no_wrap=True)
    ends.add_column(style="dim", no_wrap=True, justify="right")
    ends.add_row(*(moment(end) for end in view.read_range))
    return ends


def _lane(view: View, source: SourceStatus) -> ProgressBar:
    if source.watermark is None:
        return ProgressBar(total=1, completed=0)
    start, end = view.read_range
    done = (source.watermark - start).total_seconds()
    return ProgressBar(
        total=(end - start).total_seconds(),
        completed=done,
        complete_style="cyan",
        finished_style="cyan",
    )


def _numbers(view: View) -> list[RenderableType]:
    progress = view.status.progress
    parts = [count(progress.rows_read, "row")] if progress.rows_read or progress.committed else []
    parts += filter(None, (progress.batch_in_words, _rate(view)))
    if progress.rows_dropped_late:
        parts.append(f"{progress.rows_dropped_late:,} dropped as late")
    if progress.rows_arrived_late:
        parts.append(f"{progress.rows_arrived_late:,} arrived late")
    if progress.open_at_end:
        parts.append(f"{progress.open_at_end:,} open at the end")
    if progress.executors:
        parts.append(count(progress.executors, "executor"))
    parts += filter(None, [_rest(view)])
    return [Padding(Text("  ·  ".join(parts)), (0, 0, 0, 2))] if parts else []
