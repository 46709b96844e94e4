"""Where the histories of a simulated world differ: every event that could have gone otherwise asks
here how it goes.

A choice has a site, such as ``operator-1 patch backfills/status``, and its options in words. The
first option is the quiet one. A history is what its choices were at which occurrence of a site,
apart from the quiet ones, so that leaving one out changes no other.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random

Deviation = tuple[str, int]
"""A site, and which of its occurrences."""
History = Mapping[Deviation, int]
"""The options that were taken, by number, where it was not the first one."""

_FAVOURED = 0.5
"""How often a history takes the option of a list that it has taken first."""


class Choices:
    """Takes choices at random, or those of a history."""

    def __init__(
        self,
        random: Random | None = None,
        history: History | None = None,
        *,
        favoured: Collection[str] = (),
    ):
        """``favoured`` are options, in words, that are taken more often than others."""
        self._favoured = favoured
        self._random = random
        self._given = dict(history or {})
        self._occurrences: Counter[str] = Counter()
        self._favourites: dict[Sequence[str], int] = {}
        """Options that this history takes more often than the others."""
        self.taken: dict[Deviation, int] = {}
        self.quiet = False
        """Whether nothing deviates any more."""

    def number(
        self, site: str, options: int, chance: float, words: Sequence[str] | None = None
    ) -> int:
        """The number of an option. ``chance`` is that of any but the first."""
        occurrence = self._occurrences[site]
        self._occurrences[site] += 1
        if self.quiet or options < 2:
            return 0
        if self._random is None:
            found = min(self._given.get((site, occurrence), 0), options - 1)
        elif self._random.random() < chance:
            found = 1 + self._random.randrange(options - 1)
            if words is not None and self._random.random() < _FAVOURED:
                found = self._favourite(words, found)
        else:
            return 0
        if found:
            self.taken[site, occurrence] = found
        return found

    def _favourite(self, words: Sequence[str], found: int) -> int:
        """The option of a list that this history favours: by default the one taken first."""
        wanted = (number for number, each in enumerate(words) if each in self._favoured)
        return self._favourites.setdefault(words, next(wanted, found))

    def pick(self, site: str, options: Sequence[str], chance: float) -> str:
        """An option in words."""
        return options[self.number(site, len(options), chance, options)]


def shortest(history: History, fails: Callable[[History], bool], tries: int = 400) -> History:
    """A history that still fails, and of which nothing can be left out or made smaller.

    It is the best that was found if ``tries`` do not suffice.
    """
    best = dict(history)
    size = max(len(best) // 2, 1)
    while best and tries > 0:
        before, keys = len(best), list(best)
        for start in range(0, len(keys), size):
            fewer = {key: best[key] for key in best if key not in keys[start : start + size]}
            if len(fewer) == len(best) or tries <= 0:
                continue
            tries -= 1
            if fails(fewer):
                best = fewer
        if size == 1 and len(best) == before:
            break
        size = max(size // 2, 1)
    for key, value in list(best.items()):
        for smaller in range(1, value):
            tries -= 1
            if tries > 0 and fails(best | {key: smaller}):
                best[key] = smaller
                break
    return best
