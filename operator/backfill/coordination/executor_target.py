"""The desired number of executors.

After DS2 (Kalavri et al., "Three steps is all you need: fast, accurate, automatic scaling decisions
for distributed streaming dataflows", OSDI 2018): it follows from the true processing rate of one
executor, measured over the time that it works and not over the time that it waits, so that a run
held back by alignment does not look slow.
"""

import math
from dataclasses import dataclass
from datetime import timedelta

from backfill.api.pods import Scaling
from backfill.api.quantities import format_duration

_UTILISATION = 0.9
"""Share of its time that an executor is expected to work.
Steps that do not fill all executors take the rest.
"""
_RAISE_FROM = 1.1
_LOWER_FROM = 0.75
_LIMITED_FROM = 0.9
"""Share of the limit of rows per second from which it is what holds a run back: between steps
nothing is read.
"""
_SETTLE_SECONDS = 60.0
"""A rate measured sooner after a change still reflects the previous number of executors."""
_LONGEST = timedelta(days=3660)
"""Limit of an estimated delay; a rate near zero would give any."""
_LAST_STEPS = 3
"""With so few steps left, removing executors saves nothing and may delay the end of the run."""


@dataclass(frozen=True, slots=True)
class Load:
    """State of the run when the number of executors is decided."""

    rows_left: int
    """Rows still to be read, as planned, by all queries."""
    steps_left: int
    """Steps that the slowest query has yet to commit."""
    rows_per_executor_second: float | None
    """Rows that one executor reads per second of work; None before the first measurement."""
    elapsed_seconds: float
    """Time since the run began."""
    seconds_since_change: float
    """Time since the desired number last changed, or since the run began."""
    rows_per_second_limit: float | None = None
    """Most rows that all queries together may read per second; None without a limit. Where it is
    what holds executors back, what one of them could do is unknown.
    """
    first_spans: bool = False
    """Whether the first spans are at work. These are as large as the most executors need, and with
    fewer most of the time may have passed before one of them is committed and a rate is measured.
    """


@dataclass(frozen=True, slots=True)
class ExecutorTarget:
    """The desired number of executors, and the reason in one sentence."""

    count: int
    reason: str


def executor_target(scaling: Scaling, load: Load, current: int | None) -> ExecutorTarget:
    """The number of executors that finishes in time, within the bounds.

    ``current`` is the last number; None at first. Without ``completeWithin`` the target is the
    maximum: the same work costs the same, and is done sooner. The target changes neither for small
    differences, nor soon after a change, nor for the last steps, nor to more where a limit of rows
    per second is reached, unless it is out of bounds.
    """
    wanted = _wanted(scaling, load)
    if (
        current is None
        or not scaling.min_executors <= current <= scaling.max_executors
        or wanted.count == current
    ):
        return wanted
    obstacle = _obstacle(wanted.count, current, load)
    return (
        ExecutorTarget(current, f"{wanted.reason}; stays at {current}, {obstacle}")
        if obstacle
        else wanted
    )


def _wanted(scaling: Scaling, load: Load) -> ExecutorTarget:
    low, high = scaling.min_executors, scaling.max_executors
    if low == high:
        return ExecutorTarget(low, f"minExecutors and maxExecutors are both {low}")
    if scaling.complete_within is None:
        return ExecutorTarget(high, f"completeWithin is not set, so all {high} executors are used")
    goal = format_duration(scaling.complete_within)
    seconds_left = scaling.complete_within.total_seconds() - load.elapsed_seconds
    if seconds_left <= 0:
        return ExecutorTarget(
            high, f"completeWithin {goal} has passed, so all {high} executors are used"
        )
    if load.rows_per_executor_second is None and load.first_spans:
        return ExecutorTarget(
            high,
            f"the first batch jobs use all {high} executors until the rate per executor is"
            " measured",
        )
    if load.rows_per_executor_second is None:
        return ExecutorTarget(low, f"minExecutors ({low}) until the rate per executor is measured")
    return _in_time(load.rows_left, load.rows_per_executor_second, seconds_left, low, high)


def _in_time(
    rows_left: int, rate: float, seconds_left: float, low: int, high: int
) -> ExecutorTarget:
    needed = math.ceil(rows_left / (rate * _UTILISATION * seconds_left))
    time_left = format_duration(timedelta(seconds=math.ceil(seconds_left)))
    why = f"{rows_left:,} rows in {time_left} at {rate:,.0f} rows/s per executor need {needed}"
    if needed > high:
        needed_seconds = rows_left / (rate * _UTILISATION * high)
        late = timedelta(
            seconds=math.ceil(min(needed_seconds - seconds_left, _LONGEST.total_seconds()))
        )
        return ExecutorTarget(
            high,
            f"{why}, but maxExecutors is {high}: expect to finish {format_duration(late)} late",
        )
    if needed < low:
        return ExecutorTarget(low, f"{why}, but minExecutors is {low}")
    return ExecutorTarget(needed, why)


def _obstacle(wanted: int, current: int, load: Load) -> str | None:
    """Why the number stays at ``current`` instead of ``wanted``; None if it changes."""
    if load.seconds_since_change < _SETTLE_SECONDS:
        return f"the number changed {load.seconds_since_change:.0f} s ago"
    if _LOWER_FROM * current < wanted < _RAISE_FROM * current:
        return "the difference is small"
    if wanted < current and load.steps_left <= _LAST_STEPS:
        return "the run is about to end"
    if wanted > current and _is_limited(current, load):
        return "maxRowsPerSecond is reached"
    return None


def _is_limited(executors: int, load: Load) -> bool:
    rate, limit = load.rows_per_executor_second, load.rows_per_second_limit
    return rate is not None and limit is not None and rate * executors >= limit * _LIMITED_FROM
