"""Recent rate of work, from irregular measurements."""

import math
from dataclasses import dataclass

_MEMORY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Exponentially weighted rate per second; work of a minute ago counts a third.

    Work and time decay alike and are divided only when the rate is read. So the first measurement
    counts fully, and a step that commits at once what took ten seconds is not mistaken for a burst.
    """

    work: float = 0.0
    seconds: float = 0.0

    def after(self, work: float, seconds: float) -> "Rate":
        """The rate after ``work`` more in ``seconds`` more.

        It does not change if no time has passed, or if ``work`` is negative.
        """
        if seconds <= 0 or work < 0:
            return self
        fading = math.exp(-seconds / _MEMORY_SECONDS)
        return Rate(self.work * fading + work, self.seconds * fading + seconds)

    @property
    def per_second(self) -> float | None:
        """Work per second; None before any work."""
        return self.work / self.seconds if self.work > 0 else None
