"""Texts about results that were still open when the input ended."""

from backfill.api.drain import how_to_close
from backfill.api.output import PublishMode
from backfill.api.quantities import format_time
from backfill.api.spec import Window
from backfill.api.status import OutputStatus


def unreplaced(output: OutputStatus, window: Window, mode: PublishMode) -> str:
    """What publishing deletes from the window and does not, or may not, replace; or replaces by
    rows that are not, or may not be, final.
    """
    stretch = f"[{format_time(window.start)}, {format_time(window.end)})"
    if mode is PublishMode.UPSERT:
        return _not_final(output, window, stretch)
    deletes = f"{output.name}: publishing deletes the rows of {output.table} in {stretch}"
    if output.by_clock:
        deletes = f"{deletes} ({by_clock(output)})"
    if output.open_at_end == 0:
        return f"{deletes}. Compare the branch with the table first"
    if output.open_at_end is None:
        return (
            f"{deletes}, and may not replace all of them: {unknown(output)}. Compare the branch"
            " with the table first"
        )
    since = f", from {format_time(output.open_from)} on" if output.open_from else ""
    what = _results(output.open_at_end)
    does = (
        "and does not replace all of them"
        if output.output_mode is None
        else "and replaces some with values that are not final"
    )
    return (
        f"{deletes} {does}: {what} still open when the input ended{since};"
        f" {_remedy(output, window)}"
    )


def _not_final(output: OutputStatus, window: Window, stretch: str) -> str:
    replaces = (
        f"{output.name}: publishing replaces rows of {output.table} in {stretch} by their keys"
    )
    if output.by_clock:
        replaces = f"{replaces} ({by_clock(output)})"
    if output.open_at_end == 0:
        return f"{replaces}. Compare the branch with the table first"
    if output.open_at_end is None:
        return (
            f"{replaces}, and new ones may not be final: {unknown(output)}. Compare the branch with"
            " the table first"
        )
    since = f", from {format_time(output.open_from)} on" if output.open_from else ""
    does = "lacks" if output.output_mode is None else "has values that are not final for"
    return (
        f"{replaces}. The result {does} {_results(output.open_at_end)} still open when the input"
        f" ended{since}; {_remedy(output, window)}"
    )


def left_out(output: OutputStatus, window: Window) -> str:
    """What a result lacks or may lack; empty if nothing."""
    if output.by_clock:
        return f"{output.name} may lack results of the window: {by_clock(output)}"
    if output.open_at_end is None:
        return f"{output.name} may lack results of the window: {unknown(output)}"
    if not output.open_at_end:
        return ""
    if output.output_mode is not None:
        return (
            f"{output.name} has values that are not final for {_results(output.open_at_end)} still"
            f" open when the input ended: {_remedy(output, window)}"
        )
    return (
        f"{output.name} lacks {_results(output.open_at_end)} still open when the input ended:"
        f" {_remedy(output, window)}"
    )


def by_clock(output: OutputStatus) -> str:
    """Why rows may be missing from a result whose query depends on the current time."""
    return (
        f"its query uses {output.by_clock}, which follows the time of this run instead of the time"
        " of the events, so rows may be dropped"
    )


def unknown(output: OutputStatus) -> str:
    """Why the number of open results is unknown."""
    return (
        "it is unknown how many were still open, because"
        f" {output.open_unknown or 'the driver did not report it'}"
    )


def _remedy(output: OutputStatus, window: Window) -> str:
    return how_to_close(output.open_at_end or 0, output.needed_drain_seconds, window)


def _results(number: int) -> str:
    return (
        "1 result of the window that was"
        if number == 1
        else f"{number:,} results of the window that were"
    )
