"""How fast work is done of late, from numbers that come in irregular lumps."""

import math
from dataclasses import dataclass

_MEMORY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Work per second, where what lies a minute back counts a third.

    Work and time are faded alike and divided only when asked for, so that the first measurement counts fully and a step
    that commits at once what took ten seconds is not taken for a burst.
    """

    work: float = 0.0
    seconds: float = 0.0

    def after(self, work: float, seconds: float) -> "Rate":
        """The rate with ``work`` more done in ``seconds`` more. Without time passed, or with work undone, nothing changes."""
        if seconds <= 0 or work < 0:
            return self
        fading = math.exp(-seconds / _MEMORY_SECONDS)
        return Rate(self.work * fading + work, self.seconds * fading + seconds)

    @property
    def per_second(self) -> float | None:
        """Work per second; None while none was done."""
        return self.work / self.seconds if self.work > 0 else None
