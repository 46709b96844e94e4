"""Runs seeds: ``make simulate SEEDS=10000``. Prints the shortest history of each kind of failure."""

import argparse
import sys
import time

from simulation import Result, shrunk, simulate


def failing(seeds: range, seconds: float = float("inf")) -> tuple[dict[int, Result], int]:
    """The seeds that fail, and how many were run within this processor time."""
    found: dict[int, Result] = {}
    end = time.process_time() + seconds
    for run, seed in enumerate(seeds):
        if time.process_time() > end:
            return found, run
        result = simulate(seed)
        if result.failure:
            found[seed] = result
    return found, len(seeds)


def in_lines(seed: int, result: Result) -> str:
    """A failing history, for people to read."""
    short = shrunk(result)
    deviations = (f"  {site} (time {number + 1})" for site, number in short.history)
    return "\n".join(
        (
            f"seed {seed}: {short.failure or result.failure}",
            f"goes another way {len(short.history)} of {len(result.history)} times:",
            *deviations,
            "what happens:",
            *(f"  {line}" for line in short.lines),
        )
    )


def main() -> int:
    """Returns 1 if a seed fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    began = time.process_time()
    found, run = failing(range(given.first, given.first + given.seeds))
    rate = run / max(time.process_time() - began, 0.001)
    print(f"{run:,} seeds, {rate:.0f} in a second; {len(found)} fail: {list(found)[:20]}")
    kinds: dict[str, int] = {}
    for seed, result in found.items():
        kinds.setdefault(result.kind, seed)
    for seed in kinds.values():
        print(f"\n{in_lines(seed, found[seed])}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
