"""What ordering policies allow, and what a plan has to show for it."""

import pytest
from made_files import made_inputs

from backfill.api.errors import BackfillError
from backfill.api.spec import OrderingPolicy
from backfill.planning.ordering_policies import check_promises, step_limits
from backfill.planning.plan import Proof
from backfill.planning.step_boundaries import ANY_REACH_US
from cases import cases

START, END = 1_000, 2_000


def test_a_plan_that_breaks_its_promises_is_never_used() -> None:
    inputs = made_inputs(START, END, [])
    with pytest.raises(BackfillError, match="disorder 11 µs, allowed 10 µs"):
        check_promises(Proof(greatest_disorder_us=11, greatest_misalignment_us=0), inputs)
    with pytest.raises(BackfillError, match="misalignment 111 µs, allowed 110 µs"):
        check_promises(Proof(greatest_disorder_us=0, greatest_misalignment_us=111), inputs)


@cases(
    "policy, reach_us",
    {
        "rows may be as late as is allowed": (OrderingPolicy.WITHIN_LATENESS, 10),
        "no row may be late": (OrderingPolicy.EXACT, -1),
        "no row may be late, in offset order": (OrderingPolicy.STRICT, -1),
        "rows may be in any step": (OrderingPolicy.UNORDERED, ANY_REACH_US),
    },
)
def test_a_policy_says_how_far_files_may_reach_beyond_a_step(
    policy: OrderingPolicy, reach_us: int
) -> None:
    assert step_limits(made_inputs(START, END, [], policy=policy)).reach_us == reach_us
