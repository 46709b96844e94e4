"""What a command prints at the end of a run, and its exit status."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from backfill.api.backfill import Backfill
from backfill.api.conditions import Condition, ConditionType, Reason, find_condition
from backfill.api.quantities import count
from backfill.api.remedies import remedy
from backfill.api.status import DeliveryStatus, OutputStatus
from backfill.api.validation import other_side
from backfill.cli.exit_status import BAD_INPUT, FAILED, SUCCEEDED, WAITS
from backfill.cli.text import lasted, say, seconds, size
from backfill.controller.decisions.open_result_messages import left_out

if TYPE_CHECKING:
    from backfill.controller.local.store import LocalStore

_BAD_INPUT = {Reason.INVALID_INPUT, Reason.UNSUPPORTED_PROGRAM}


def exit_status(backfill: Backfill) -> int:
    """0 succeeded, 1 failed, 2 bad input, 3 waiting for a person."""
    outcome = find_condition(backfill.status.conditions, ConditionType.SUCCEEDED)
    if outcome is None or outcome.status == "Unknown":
        return WAITS
    if outcome.status == "True":
        return SUCCEEDED
    return BAD_INPUT if outcome.reason in _BAD_INPUT else FAILED


def already_succeeded(name: str) -> str:
    """Why a command changes nothing."""
    return (
        f"{name} has already succeeded; there is nothing to do. To run it again,"
        " cancel it first or give it another name."
    )


def print_end(
    backfill: Backfill,
    store: "LocalStore",
    out: Console,
    err: Console,
    options: str,
    *,
    located: Callable[[str], str] = str,
) -> None:
    """Prints how the run ended and what to do next.

    ``options`` are those that a next command needs. ``located`` adds to a problem where its field
    is.
    """
    status = exit_status(backfill)
    if status == SUCCEEDED:
        _tell_success(backfill, out)
    elif status == WAITS:
        say(out, f"{backfill.metadata.name}: {waiting_for(backfill, options)}")
    else:
        _tell_failure(backfill, store, err, options, located)


def waiting_for(backfill: Backfill, options: str) -> str:
    """What a Backfill at rest waits for a person to do, with the command."""
    name, progress = backfill.metadata.name, backfill.status.progress
    published = find_condition(backfill.status.conditions, ConditionType.PUBLISHED)
    if published is not None and published.reason == Reason.WAITING_FOR_APPROVAL:
        return (
            f"{published.message}\n"
            f"publish with: backfill approve {name}{options}\n"
            f"or reject the result with: backfill reject {name}{options} --reason ..."
        )
    why = "suspended" if backfill.spec.suspend else "interrupted"
    where = (
        f" after {progress.committed:,} of {count(progress.steps, 'step')}"
        if progress.steps
        else ""
    )
    return f"{why}{where}; resume with: backfill resume {name}{options}"


def _tell_success(backfill: Backfill, out: Console) -> None:
    status, progress = backfill.status, backfill.status.progress
    duration = ""
    if status.started_at and status.finished_at:
        duration = f" in {seconds(lasted(status.started_at, status.finished_at))}"
    read = f"{count(progress.steps, 'step')}, {count(progress.rows_read, 'row')} read"
    say(
        out,
        f"{backfill.metadata.name}: succeeded{duration}: {read}, {progress.late_in_words}",
    )
    cost = status.cost
    if cost is not None and cost.executor_seconds:
        say(
            out,
            f"  used {seconds(cost.driver_seconds)} of driver time and"
            f" {seconds(cost.executor_seconds)} of executor time, and read {size(cost.bytes_read)}",
        )
    for output in status.outputs:
        say(out, f"  {output.name}: {_where(output)}")
    handed = find_condition(status.conditions, ConditionType.HANDED_OVER)
    for line in handed.message.splitlines() if handed is not None else ():
        say(out, f"  {line}")
    for output in status.outputs:
        missing = left_out(output, backfill.spec.window)
        if missing:
            say(out, f"  {missing}")


def _where(output: OutputStatus) -> str:
    rows = count(output.rows, "row")
    published = f"{rows} published to {output.destination}"
    if output.is_undone:
        by = f", snapshot {output.undo_snapshot_id}" if output.undo_snapshot_id else ""
        return f"{published} and undone{by}"
    if output.delivery is not None and output.is_published:
        return f"{_delivered(output.delivery)}{compared(output)}"
    if output.exported is not None:
        written = f"{count(output.exported.files, 'file')} of {size(output.exported.bytes)}"
        return f"{published}, {written}{compared(output)}"
    if output.snapshot_id is not None:
        return f"{published}, snapshot {output.snapshot_id}{compared(output)}"
    return (
        f"{rows} in branch {output.branch} of {output.table}{compared(output)}"
        if output.branch
        else "no rows"
    )


def _delivered(delivery: DeliveryStatus) -> str:
    return f"{count(delivery.rows, 'row')} delivered in {delivery.in_words}"


def compared(output: OutputStatus) -> str:
    """How much of a result matches; empty if it was not compared."""
    if output.match is None or output.comparison is None:
        return ""
    other = other_side(output.comparison.reference)
    return f"; {output.match} % matched {other}, report: {output.comparison.report}"


def _tell_failure(
    backfill: Backfill,
    store: "LocalStore",
    err: Console,
    options: str,
    located: Callable[[str], str],
) -> None:
    outcome = find_condition(backfill.status.conditions, ConditionType.SUCCEEDED)
    if outcome is None:
        return
    lines = outcome.message.splitlines() or [str(outcome.reason)]
    shown = lines if outcome.reason in _BAD_INPUT else lines[:1]
    for line in shown:
        say(err, f"error: {located(line)}")
    for line in lines[len(shown) :]:
        say(err, f"  {line}")
    if remedy(outcome.reason).in_log and backfill.status.attempts:
        log = store.attempts / str(backfill.status.attempts[-1].number) / "driver.log"
        say(err, f"the driver's log: {_short(log)}")
    if outcome.reason in (Reason.REJECTED, Reason.UNDONE):
        return  # as somebody has decided
    if backfill.status.plan_id is None and backfill.status.attempts:
        fix = "correct the manifest or the program, and run the file again"
        say(err, f"nothing was committed: {fix}")
    elif remedy(outcome.reason).start_over or _of_the_spec(outcome):
        say(err, f"start over with: backfill cancel {backfill.metadata.name}{options}")
    elif outcome.reason != Reason.INVALID_INPUT:
        say(err, f"try again with: backfill resume {backfill.metadata.name}{options}")


def _of_the_spec(outcome: Condition) -> bool:
    """Whether a program was refused for fields of the spec, which can only change in another
    Backfill.
    """
    return outcome.reason == Reason.UNSUPPORTED_PROGRAM and outcome.message.startswith("spec.")


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
