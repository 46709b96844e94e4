"""What a stream's state needs is estimated from above, by the rows of the plan's steps."""

import math

import pytest

from backfill.planning.plan import PlanHeader, Proof, SourceTotals
from backfill.runtime.queries.state_size import Kept, most_bytes

MINUTE = 60_000_000
MANY = 50_000
"""Rows of a step, of which some surely move the watermark."""


def plan(disorder: int = 0, **rows: list[int]) -> PlanHeader:
    """Steps of ten minutes with so many rows, by source."""
    steps = len(next(iter(rows.values())))
    return PlanHeader.model_construct(
        step_starts_us=tuple(10 * MINUTE * step for step in range(steps)),
        step_ends_us=tuple(10 * MINUTE * (step + 1) for step in range(steps)),
        sources=tuple(
            SourceTotals.model_construct(name=name, step_rows=tuple(each))
            for name, each in rows.items()
        ),
        proof=Proof.model_construct(greatest_disorder_us=disorder * MINUTE),
    )


def kept(source: str = "l", since: float = 0, copies: float = 1, entry: float = 1) -> Kept:
    return Kept(source, since * MINUTE, copies, entry)


@pytest.mark.parametrize(
    ("case", "what", "delay", "header", "rows"),
    [
        ("no state", [], 0, plan(l=[MANY] * 9), 0),
        ("a step, and the one before it, whose rows have moved the watermark",
         [kept()], 0, plan(l=[MANY] * 9), 2 * MANY),
        ("rows of half an hour before the watermark",
         [kept(since=30)], 0, plan(l=[MANY] * 9), 5 * MANY),
        ("the delay counts twice: a row may come so late, and is waited for so long",
         [kept()], 10, plan(l=[MANY] * 9), 4 * MANY),
        ("steps whose rows are not in order", [kept()], 0, plan(10, l=[MANY] * 9), 3 * MANY),
        ("everything where nothing is removed", [kept(since=math.inf)], 0, plan(l=[MANY] * 9),
         9 * MANY),
        ("not more than there is", [kept(since=1e9)], 0, plan(l=[MANY] * 9), 9 * MANY),
        ("dense steps, before which a single row may not have moved the watermark",
         [kept()], 0, plan(l=[MANY, 1, 7 * MANY, MANY, 1]), 8 * MANY + 1),
        ("copies, and bytes of an entry", [kept(copies=3, entry=7)], 0, plan(l=[MANY] * 9),
         42 * MANY),
        ("what several operators keep", [kept(), kept(entry=2)], 0, plan(l=[MANY] * 9), 6 * MANY),
        ("both sides of a join", [kept(), kept("r")], 0,
         plan(l=[MANY] * 9, r=[2 * MANY] * 9), 6 * MANY),
        ("a source that has not begun holds the watermark",
         [kept(), kept("r")], 0, plan(l=[MANY] * 5, r=[0, 0, 0, 0, MANY]), 6 * MANY),
        ("a source with a pause holds the watermark",
         [kept(), kept("r")], 0, plan(l=[MANY] * 6, r=[MANY, 0, 0, 0, 0, MANY]), 8 * MANY),
        ("a source with few rows: no single one is known to move the watermark",
         [kept(), kept("r")], 0, plan(l=[MANY] * 5, r=[10] * 5), 5 * MANY + 50),
        ("unknown copies", [kept(copies=math.inf)], 0, plan(l=[MANY] * 9), math.inf),
        ("entries of any length", [kept(entry=math.inf)], 0, plan(l=[MANY] * 9), math.inf),
    ],
)  # fmt: skip
def test_the_most_rows_that_are_kept_at_once(
    case: str, what: list[Kept], delay: int, header: PlanHeader, rows: float
) -> None:
    assert most_bytes(what, header, delay * MINUTE) == rows, case


def test_a_plan_without_the_rows_of_its_steps_says_nothing() -> None:
    header = plan(l=[MANY]).model_copy(
        update={"sources": (SourceTotals.model_construct(name="l", step_rows=()),)}
    )
    assert most_bytes([kept()], header, 0) == math.inf
