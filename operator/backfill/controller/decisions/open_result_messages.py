"""Texts about results that were still open when the input ended, and about rows that publishing
removes without replacement.
"""

from collections.abc import Sequence

from backfill.api.approval import exceeds, is_empty
from backfill.api.drain import how_to_close
from backfill.api.output import PublishMode
from backfill.api.quantities import count, format_time
from backfill.api.spec import Window
from backfill.api.status import BackfillStatus, OutputStatus


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


def lost_rows(output: OutputStatus, max_loss: str) -> str:
    """What ``Replace`` removes without replacement, a line for each stretch that loses more than is
    allowed; empty if the result has at least as many rows as production everywhere.
    """
    losses = output.losses
    if losses is None or losses.problem:
        why = losses.problem if losses is not None else "they were not counted"
        return (
            f"{output.name}: it is unknown how many rows of {output.table} in the window would be"
            f" removed without replacement: {why}"
        )
    if not losses.stretches:
        return ""
    numbers = (
        f"{count(losses.production_rows, 'row')} in production,"
        f" {losses.result_rows:,} in the result"
    )
    lost = [each for each in losses.stretches if exceeds(each, max_loss)]
    if not lost:
        return f"{output.name}: {numbers}"
    lines = [
        f"{output.name}: publishing would remove more rows of {output.table} than it replaces"
        f" (publish.maxLoss: {max_loss} %): {numbers}"
    ]
    lines += [
        f"  [{format_time(each.start)}, {format_time(each.end)}):"
        f" {count(each.production_rows, 'row')} in production, {each.result_rows:,} in the result"
        for each in lost
    ]
    if losses.further:
        lines.append(f"  and {losses.further:,} more")
    return "\n".join(lines)


def null_columns(output: OutputStatus, columns: Sequence[str]) -> str:
    """Which columns are null in every row, unlike in production, and what may be the reason."""
    return (
        f"{output.name}: null in every row, although {output.table} has values:"
        f" {', '.join(columns)}; the application may decode fields by names that its"
        " records do not have here. If null is right, list the columns in publish.allowNull"
    )


def nothing(status: BackfillStatus) -> str:
    """Says that all results are empty, and what may be the reason; empty if one has rows."""
    if not is_empty(status):
        return ""
    outside = sum(output.rows_outside_window for output in status.outputs)
    why = (
        f"{count(outside, 'row')} written for times outside it; compare the window with what the"
        " application writes into timestampColumn"
        if outside
        else "the application may filter by fields that its records do not have here"
    )
    read = count(status.progress.rows_read, "row")
    return f"no result has a row in the window, although {read} were read: {why}"


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
