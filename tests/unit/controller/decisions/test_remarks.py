"""What a person is told when the plan is made: fields without effect, and history that is missing
where rows are replaced.
"""

from datetime import timedelta
from typing import Any

import pytest

from backfill.api.quantities import format_duration
from backfill.controller.decisions.plan.plan_warnings import remarks
from backfill.planning.plan import PlanHeader
from situations import HEADER, backfill

REPLACED = [
    {
        "name": "counts",
        "table": "lake.ops.counts",
        "timestampColumn": "at",
        "publish": {"mode": "Replace"},
    }
]


def told(*, one_process: bool = False, header: PlanHeader = HEADER, **spec: Any) -> list[str]:
    return list(remarks(backfill(**spec).spec, header, one_process=one_process))


def with_rows(*step_rows: int) -> PlanHeader:
    source = HEADER.sources[0].model_copy(update={"step_rows": step_rows})
    return HEADER.model_copy(update={"sources": (source,)})


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"scaling": {"maxExecutors": 4}}, "spec.scaling"),
        ({"scaling": {"completeWithin": "1h"}}, "spec.scaling"),
        (
            {"overrides": {"driver": {"memory": "4g", "serviceAccount": "spark"}}},
            "spec.overrides.driver other than memory",
        ),
        ({"overrides": {"executor": {"memory": "8g"}}}, "spec.overrides.executor"),
        ({"catalogs": [{"name": "lake", "secretRef": {"name": "s"}}]}, "spec.catalogs[].secretRef"),
    ],
)
def test_what_has_no_effect_on_this_machine_is_said_there_and_only_there(
    spec: dict[str, Any], field: str
) -> None:
    (remark,) = told(one_process=True, **spec)
    assert remark.startswith("these fields have no effect on this machine: ")
    assert field in remark
    assert told(**spec) == []


@pytest.mark.parametrize(
    "given", [{"name": "x"}, {"maxLag": "1m"}, {"overrides": {"driver": {"cores": 2}}}]
)
def test_what_only_a_live_application_of_the_operators_would_need_is_said(
    given: dict[str, Any],
) -> None:
    (field,) = given
    (remark,) = told(handOff={"to": "Live", **given})
    assert remark == f"these fields have no effect here: spec.handOff.{field} with start: Prepare"
    assert told(handOff={"to": "Live", "start": "Deploy", **given}) == []
    assert told(handOff={"to": "Live"}) == []


def test_that_a_hand_off_by_time_reads_records_twice_and_may_lose_some_is_said() -> None:
    hand_off = {"to": "Live", "startingTimestampMargin": "90m"}
    names = ("clicks", "views", "plays")
    by_time = [
        {"name": each, "table": f"lake.raw.{each}", "timestampColumn": "at"} for each in names
    ]
    by_time[1]["kafka"] = {"partitionColumn": "p", "offsetColumn": "o"}
    assert told(handOff=hand_off, sources=by_time) == [
        "sources clicks, plays: live traffic continues with records up to 1h30m older than"
        " the newest row of each; queries must drop duplicates, and older records that are"
        " missing from the table are lost"
    ]
    assert told(handOff=hand_off, sources=by_time[1:2]) == [
        "these fields have no effect here: spec.handOff.startingTimestampMargin when all sources have Kafka offsets"
    ]


def test_that_queries_left_out_go_live_without_state_is_said() -> None:
    (remark,) = told(handOff={"to": "Live"}, ignoredQueries=["alerts"])
    assert "starts these queries without state" in remark
    assert told(ignoredQueries=["alerts"]) == []


def test_a_lateness_that_the_policy_does_not_look_at_is_said() -> None:
    ordering = {"policy": "Exact", "allowedLateness": "1h"}
    for one_process in (True, False):
        (remark,) = told(one_process=one_process, ordering=ordering, execution="Streaming")
        assert "spec.ordering.allowedLateness with policy Exact" in remark
    assert told(ordering=ordering | {"policy": "Strict"}, execution="Streaming") == []


def test_a_lateness_by_which_batch_jobs_go_is_not_without_effect() -> None:
    for execution in ("Auto", "Batch"):
        ordering = {"policy": "Exact", "allowedLateness": "1h"}
        assert told(ordering=ordering, execution=execution) == []


def test_a_plain_backfill_is_not_talked_about() -> None:
    for one_process in (True, False):
        assert (
            told(
                one_process=one_process,
                outputs=REPLACED,
                overrides={"driver": {"memory": "4g"}, "sparkConf": {"a": "b"}},
            )
            == []
        )


@pytest.mark.parametrize(
    ("step_rows", "stretch"),
    [
        ((0, 0, 5, 5, 5, 5, 5, 5, 5, 5), "[2024-01-01T00:00:00Z, 2024-01-01T02:00:00Z)"),
        ((5, 5, 5, 5, 0, 5, 5, 0, 0, 0), "[2024-01-01T07:00:00Z, 2024-01-01T10:00:00Z)"),
        ((5, 5, 5, 0, 0, 5, 5, 0, 5, 5), "[2024-01-01T03:00:00Z, 2024-01-01T05:00:00Z)"),
        ((0,) * 10, "[2024-01-01T00:00:00Z, 2024-01-01T10:00:00Z)"),
    ],
    ids=["at the beginning", "at the end", "in the middle", "everywhere"],
)
def test_history_that_is_missing_where_rows_are_replaced_is_said(
    step_rows: tuple[int, ...], stretch: str
) -> None:
    (remark,) = told(header=with_rows(*step_rows), outputs=REPLACED)
    assert remark.startswith(f"source clicks has no rows in {stretch}: ")
    assert told(header=with_rows(*step_rows)) == [], "Append deletes nothing"


def test_an_application_that_reads_the_rows_that_are_replaced_is_warned_about() -> None:
    whole = with_rows(*[5] * 10)
    table = REPLACED[0]["table"]
    for as_of in ({}, {"asOf": "window"}, {"asOf": "2024-01-01T01:00:00Z"}):
        static = [{"table": "lake.ops.users"}, {"table": table, **as_of}]
        (remark,) = told(header=whole, outputs=REPLACED, staticTables=static)
        assert remark.startswith(
            "spec.staticTables[1]: lake.ops.counts is also the table of output"
        )
        assert "Replace deletes these" in remark
        assert "set asOf to 2024-01-01T00:00:00Z or earlier" in remark
        appended = [{**REPLACED[0], "publish": {"mode": "Append"}}]
        assert told(header=whole, outputs=appended, staticTables=static) == []
    before = [{"table": table, "asOf": "2024-01-01T00:00:00Z"}]
    assert told(header=whole, outputs=REPLACED, staticTables=before) == []


def test_steps_whose_overhead_takes_longer_than_their_rows_are_advised_against() -> None:
    def plan(
        steps: int, rows: int, longest_us: int = HEADER.inputs.max_misalignment_us // 2
    ) -> PlanHeader:
        source = HEADER.sources[0].model_copy(update={"rows": steps * rows})
        starts = tuple(range(steps))
        ends = tuple(start + longest_us for start in starts)
        return HEADER.model_copy(
            update={"sources": (source,), "step_starts_us": starts, "step_ends_us": ends}
        )

    inputs = HEADER.inputs
    length = format_duration(timedelta(microseconds=inputs.read_end_us - inputs.read_start_us))
    (said,) = told(header=plan(1_000, 40))
    assert said.startswith(
        "steps have only 40 rows on average, and a query that runs as a stream takes at"
        " least 5 minutes for the overhead of its 1,000 steps: spec.maxMisalignment: "
    )
    assert f"spec.maxMisalignment: {length} makes" in said, "no more than what is read"
    assert told(header=plan(1_000, 2_000)) == []
    assert told(header=plan(100, 40)) == [], "half a minute"
    assert told(header=plan(1_000, 40), execution="Batch") == []
    assert told(header=plan(1_000, 40, longest_us=1)) == [], "targetStepBytes makes them so small"
