"""Formats numbers, times and lengths of time for people, and prints messages as they are."""

import re
from datetime import UTC, datetime

from rich.console import Console

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_KIBI = 1024
_COMMAND = re.compile(r"\bbackfill \w+ \w")


def moment(value: datetime) -> str:
    """A time in UTC, with seconds only if they are not zero."""
    value = value.astimezone(UTC)
    return value.strftime("%Y-%m-%d %H:%M:%S" if value.second else "%Y-%m-%d %H:%M")


def lasted(start: datetime, end: datetime) -> float:
    """Seconds from one time to another; none if the clock was set back in between."""
    return max((end - start).total_seconds(), 0.0)


def seconds(value: float) -> str:
    """A length of time, coarser the longer it is."""
    if value < 60:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def size(value: float) -> str:
    """A number of bytes, with about three digits."""
    for unit in _UNITS[:-1]:
        if value < _KIBI:
            return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"
        value /= _KIBI
    return f"{value:.1f} {_UNITS[-1]}"


def say(console: Console, text: str) -> None:
    """Prints a message as it is. On a terminal, its lines are wrapped between words, except those
    with a command, which is copied as one line.
    """
    for line in text.splitlines() or [""]:
        wraps = console.is_terminal and _COMMAND.search(line) is None
        console.print(line, highlight=False, markup=False, soft_wrap=not wraps)


def warn(text: str) -> None:
    """Prints a message on standard error."""
    say(Console(stderr=True), text)
