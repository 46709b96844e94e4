"""The clock of a simulated world, and what happens when.

Everything runs in one thread. While an actor waits for an answer, other events may happen: the
events of actors that are held are kept back until they are released.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from choices import Choices

EPOCH = datetime(2024, 3, 1, 12, tzinfo=UTC)


class Violation(BaseException):
    """A promise was broken. No code under test may catch it."""


class World:
    """Virtual time, the events to come, and what has happened in words."""

    def __init__(self, choices: Choices):
        self.choices = choices
        self.seconds = 0.0
        self.lines: list[str] = []
        self.events = 0
        self._agenda: list[tuple[float, int, str, Callable[[], None]]] = []
        self._order = count()
        self._held: Counter[str] = Counter()

    @property
    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.seconds)

    @property
    def text_now(self) -> str:
        """The time as Kubernetes writes it."""
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def monotonic(self) -> float:
        return self.seconds

    def note(self, line: str) -> None:
        """Records what happens, for people."""
        self.lines.append(f"{self.now:%H:%M:%S} {line}")

    def pick(self, site: str, options: tuple[str, ...], chance: float) -> str:
        """How an event goes; noted if that is not the quiet way."""
        found = self.choices.pick(site, options, chance)
        if found != options[0]:
            self.note(f"{site}: {found}")
        return found

    def later(self, site: str, seconds: tuple[float, ...], chance: float) -> float:
        """How long something takes; noted if that is not the quiet time."""
        found = seconds[self.choices.number(site, len(seconds), chance)]
        if found != seconds[0]:
            self.note(f"{site}: takes {found:g} s")
        return found

    def after(self, seconds: float, act: Callable[[], None], actor: str = "") -> None:
        """Does something in a while, unless its actor is held then."""
        heapq.heappush(self._agenda, (self.seconds + seconds, next(self._order), actor, act))

    def run_until(self, end: float, over: Callable[[], bool] = lambda: False) -> None:
        """Lets everything happen that is due by then, or until it is over."""
        kept: list[tuple[float, int, str, Callable[[], None]]] = []
        while self._agenda and self._agenda[0][0] <= end and not over():
            entry = heapq.heappop(self._agenda)
            if self._held[entry[2]]:
                kept.append(entry)
                continue
            self.seconds = max(self.seconds, entry[0])
            self.events += 1
            entry[3]()
        for entry in kept:
            heapq.heappush(self._agenda, entry)
        if not over():
            self.seconds = max(self.seconds, end)

    def wait(self, seconds: float, held: Iterable[str]) -> None:
        """Lets time pass for an actor that waits, while others go on."""
        actors = tuple(held)
        self._held.update(actors)
        try:
            self.run_until(self.seconds + seconds)
        finally:
            self._held.subtract(actors)


class VirtualTimeModule:
    """Stands in for the module ``time`` in code that reads it there."""

    def __init__(self, world: World):
        self.monotonic = world.monotonic


def virtual_datetime(world: World) -> Any:
    """Stands in for the class ``datetime`` in code that asks it for the time."""

    class VirtualDatetime(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return world.now

    return VirtualDatetime
