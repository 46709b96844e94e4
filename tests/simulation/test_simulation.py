"""Whatever goes wrong in whatever order: a Backfill keeps its promises, and comes to its end."""

import os
from random import Random

from choices import Choices, shortest
from oracles import COMMITS_LATE
from run import failing, in_lines
from simulated_api_server import FATES
from simulated_people import PLANS, TIMES
from virtual_time import World

from simulation import Result, replay, simulate

SECONDS = 25.0
"""Processor time for seeds; `make simulate` takes more."""


def first_seed() -> int:
    """Whether a change may land must not depend on luck; everywhere else, other seeds are tried."""
    return 0 if os.environ.get("CI") else Random().randrange(10**9)


def test_a_quiet_history_publishes_every_step_once_and_leaves_nothing_behind() -> None:
    result = replay({})
    assert result.failure == ""
    assert result.outcome == "Finished"


def test_a_seed_gives_the_same_history_each_time() -> None:
    assert simulate(3) == simulate(3)


def test_whatever_goes_wrong_a_backfill_keeps_its_promises() -> None:
    first = first_seed()
    found, _ = failing(range(first, first + 100_000), SECONDS)
    assert not found, "\n\n".join(in_lines(seed, found[seed]) for seed in list(found)[:3])


def test_a_leader_that_was_paused_starts_no_driver_for_a_backfill_that_was_suspended() -> None:
    paused = FATES.index("the process is paused for 150 s before it")
    result = replay(
        {
            ("second replica", 0): 1,
            ("person 1", 0): PLANS.index("suspend it"),
            ("person 1 waits", 0): TIMES.index(30.0),
            ("operator-1 create splitassignments", 0): paused,
        }
    )
    assert result.failure == ""
    assert any("operator-1 has ended" in line for line in result.lines)
    assert not any(COMMITS_LATE in line for line in result.lines)


def test_what_a_late_driver_writes_after_a_removal_is_removed_by_the_next_leader() -> None:
    killed = FATES.index("the process is killed before it")
    result = replay(
        {
            ("second replica", 0): 1,
            ("operator-2 list splitassignments", 0): FATES.index(
                "takes effect, and its answer is lost"
            ),
            ("operator-1 create pods", 1): killed,
            ("person at InputUnknown", 0): PLANS.index("delete it"),
            ("operator-3 create sparkapplications", 1): FATES.index(
                "the process is paused for 150 s before it"
            ),
            ("operator-2 patch backfills", 0): killed,
        }
    )
    assert result.failure == ""
    assert any("operator-4 leads" in line for line in result.lines)


def test_a_driver_that_is_submitted_after_its_backfill_was_deleted_writes_nothing() -> None:
    slow_collector = {("garbage collector", number): 1 for number in range(8)}
    result = replay(
        {
            ("person at Starting", 0): PLANS.index("delete it, and create it again"),
            ("Spark operator submits 1", 0): 2,  # after a minute
            ("Spark operator", 0): 1,  # although it was deleted
            ("discard job begins", 0): 1,
            ("plan job begins", 1): 1,  # until then, an old SplitAssignment is in nobody's way
            ("kubelet ends a pod", 0): 1,
            **slow_collector,
        }
    )
    assert result.failure == ""
    assert any("driver 1 finds no SplitAssignment" in line for line in result.lines)


def test_a_job_whose_pod_is_created_after_its_backfill_was_deleted_makes_nothing() -> None:
    result = replay(
        {
            ("second replica", 0): 1,
            ("person at Planning", 0): PLANS.index("delete it"),
            ("operator-1 create configmaps", 0): FATES.index(
                "the process is paused for 150 s before it"
            ),
        }
    )
    assert result.failure == ""
    assert any("operator-1 has ended" in line for line in result.lines)


def test_of_a_failing_history_only_what_it_needs_is_shown() -> None:
    needed = {("driver 1", 2): 1, ("person 1", 0): 1}
    more = {("kubelet", number): 2 for number in range(20)}
    found = shortest(
        {**needed, **more, ("driver 1", 2): 4},
        lambda history: needed.keys() <= history.keys(),
    )
    assert found == needed


def test_what_is_left_out_of_a_history_changes_nothing_else() -> None:
    def course(history: dict[tuple[str, int], int]) -> list[str]:
        world = World(Choices(history=history))
        return [world.pick(site, ("well", "badly"), 0.5) for site in ("a", "b", "a", "b")]

    assert course({("a", 0): 1, ("b", 1): 1}) == ["badly", "well", "well", "badly"]
    assert course({("b", 1): 1}) == ["well", "well", "well", "badly"]


def test_failures_that_differ_in_figures_are_of_one_kind() -> None:
    one, other = (
        Result({}, (), f"released went from {number} back to 1", "", 0) for number in (2, 30)
    )
    assert one.kind == other.kind
