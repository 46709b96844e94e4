"""What cannot be compared is found in the table's schema, before anything runs."""

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimestamptzType

from backfill.api.output import Output
from backfill.outputs.comparable import check_comparison

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "at", TimestamptzType()),
    NestedField(3, "seen", TimestamptzType()),
)


@pytest.mark.parametrize(
    ("tolerance", "problem"),
    [
        ("3660d", None),
        ("3661d", "seen: '3661d' is longer than ten years; give a shorter duration"),
        ("999999999d999999999h", "seen: '999999999d999999999h' is longer than ten years; give"),
        ("5", "seen: '5' is not a duration; write it as 500ms, 5s or 1d"),
    ],
)
def test_a_tolerance_is_a_duration_that_can_be_compared_with(
    tolerance: str, problem: str | None
) -> None:
    output = Output.model_validate(
        {
            "name": "events",
            "table": "lake.raw.events",
            "timestampColumn": "at",
            "validate": {"keys": ["id"], "tolerance": {"seen": tolerance}},
        }
    )
    found = [str(each) for each in check_comparison(SCHEMA, output, "spec.outputs[0]")]
    assert len(found) == (problem is not None)
    assert (problem or "") in "".join(found)
