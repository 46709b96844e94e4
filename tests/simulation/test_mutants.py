"""The simulation finds faults: each of those that are put in by hand, within a few seeds."""

import pytest
from mutants import FAVOURED, MUTANTS, mutated

from simulation import simulate

SEEDS = 120
_RARE = (
    "an approval counts for another result",
    "the backoff has no bound",
    "a request to stop is taken back",
    "a driver that was stopped counts as finished",
    "a rejection counts while the result is published",
    "an undo counts before it is made",
)
"""Faults that take more than ten seeds, each a tenth of a second of processor time."""


@pytest.mark.parametrize(
    "fault",
    [pytest.param(name, marks=pytest.mark.slow) if name in _RARE else name for name in MUTANTS],
)
def test_the_simulation_finds_a_fault(fault: str) -> None:
    favoured = FAVOURED.get(fault, ())
    with mutated(fault):
        seed = next((seed for seed in range(SEEDS) if simulate(seed, favoured).failure), None)
    assert seed is not None, "an oracle or a fault is missing"
    assert simulate(seed, favoured).failure == "", "it fails without the fault as well"
