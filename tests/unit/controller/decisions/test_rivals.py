"""Two Backfills that publish into the same rows: told when the second one is planned, never
refused.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.spark_application import Application
from backfill.api.status import BackfillStatus, DeliveryStatus, OutputStatus
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.overlapping_backfills import (
    published_tables,
    rivals,
    tables_of_rivals,
)
from backfill.controller.jobs.kinds.make_plan import PlanResult
from backfill.controller.local.store import LocalStore
from cases import cases
from situations import HEADER, backfill, job_state, observed, plan_job, planned, with_condition

OURS = backfill()


def other(name: str = "february", namespace: str = "elsewhere", **fields: Any) -> Backfill:
    made = backfill(**fields)
    return made.model_copy(
        update={"metadata": made.metadata.model_copy(update={"name": name, "namespace": namespace})}
    )


def window(start: str, end: str) -> dict[str, str]:
    return {"start": f"2024-01-01T{start}:00Z", "end": f"2024-01-01T{end}:00Z"}


def outputs(table: str = "lake.ops.counts", mode: str = "Append") -> list[dict[str, Any]]:
    return [{"name": "sums", "table": table, "publish": {"mode": mode}}]


def test_another_backfill_of_the_same_rows_is_named_with_its_window() -> None:
    february = other(window=window("09:00", "12:00"), outputs=outputs(mode="Replace"))
    (told,) = rivals(OURS, [february], one_owner=True)
    assert told.startswith(
        "Backfill elsewhere/february, which is in progress, also writes lake.ops.counts, from "
    )
    assert (
        "from 2024-01-01T09:00:00Z to 2024-01-01T12:00:00Z: whichever publishes second is refused"
        in told
    )


@pytest.mark.hostile
def test_what_another_team_calls_its_backfills_is_not_told() -> None:
    (told,) = rivals(OURS, [other()])
    assert "a Backfill of another namespace, which" in told
    assert not {"elsewhere", "february"} & set(re.findall(r"\w+", told))
    (told,) = rivals(OURS, [other(namespace=OURS.metadata.namespace)])
    assert "Backfill default/february, which" in told


SUCCEEDED = with_condition(planned(), ConditionType.SUCCEEDED, "True", Reason.FINISHED)
FAILED = with_condition(planned(), ConditionType.SUCCEEDED, "False", Reason.ATTEMPTS_EXHAUSTED)


@cases(
    "harmless",
    {
        "its window begins where ours ends": {"window": window("10:00", "12:00")},
        "it writes another table": {"outputs": outputs(table="lake.ops.other")},
        "it publishes nothing": {"outputs": outputs(mode="None")},
        "it has succeeded": {"status": SUCCEEDED},
        "it has failed": {"status": FAILED},
        "it is being deleted": {"deleted": True},
    },
)
def test_who_publishes_nothing_into_our_rows_is_no_rival(harmless: dict[str, Any]) -> None:
    assert rivals(OURS, [other(**harmless)]) == ()


def test_who_publishes_nothing_has_no_rivals() -> None:
    assert rivals(other(outputs=outputs(mode="None")), [OURS]) == ()


def test_rivals_are_told_with_the_plan_which_is_made_all_the_same() -> None:
    state = job_state(plan_job(OURS), "Done", result=PlanResult(HEADER, ()))
    decision = decide(observed(OURS, job=state, rivals=("somebody else writes there",)))
    found = find_condition(decision.status.conditions, ConditionType.PLANNED)
    assert found is not None
    assert (found.status, found.reason) == ("True", Reason.PLAN_READY)
    assert found.message.splitlines()[1:] == ["somebody else writes there"]


def test_the_others_of_a_state_directory_are_found(tmp_path: Path) -> None:
    application = Application(name="app", main_application_file="/app/main.py", manifest={})
    for each in (OURS, other(), other(name="march", outputs=outputs(table="lake.ops.other"))):
        LocalStore(tmp_path, each.metadata.namespace, each.metadata.name).create(each, application)
    (tmp_path / "elsewhere" / "broken").mkdir()
    (tmp_path / "elsewhere" / "broken" / "backfill.json").write_text("{}")
    # no file that could be read, whoever tries
    (tmp_path / "elsewhere" / "closed" / "backfill.json").mkdir(parents=True)
    store = LocalStore(tmp_path, "default", "january")
    assert [found.metadata.name for found in store.writers_of(published_tables(OURS))] == [
        "february"
    ]


def delivering(name: str = "sums", **fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, "table": "lake.staged.sums", "publish": {"mode": "Deliver"}, **fields}]


def delivered(rows: int, batches: int) -> BackfillStatus:
    delivery = DeliveryStatus(batches=4, delivered=batches, rows=rows)
    return BackfillStatus(
        outputs=(OutputStatus(name="sums", table="lake.staged.sums", delivery=delivery),)
    )


def test_rows_that_the_sink_has_got_already_are_said_with_the_output_that_repeats_them() -> None:
    ours = backfill(outputs=delivering())
    done = with_condition(delivered(7, 3), ConditionType.SUCCEEDED, "True", Reason.FINISHED)
    here = ours.metadata.namespace
    before = other(namespace=here, status=done, outputs=delivering())
    (said,) = rivals(ours, [before])
    assert said.startswith(
        "spec.outputs[0].publish: Backfill february has delivered 7 rows of sums"
    )
    assert tables_of_rivals(ours) == {"lake.staged.sums"}

    begins = other(namespace=here, outputs=delivering())
    (said,) = rivals(ours, [begins])
    assert "Backfill february also delivers sums, from 2024-01-01T00:00:00Z to" in said

    for harmless in (
        other(namespace=here, status=done, outputs=delivering("others")),
        other(namespace=here, status=done, outputs=outputs("lake.staged.sums")),
        other(namespace=here, outputs=delivering(), window=window("12:00", "15:00")),
        other(namespace=here, status=done, outputs=delivering(), applicationRef={"name": "b"}),
        other(status=done, outputs=delivering()),
        other(
            namespace=here,
            status=with_condition(
                delivered(0, 0), ConditionType.SUCCEEDED, "False", Reason.REJECTED
            ),
            outputs=delivering(),
        ),
    ):
        assert rivals(ours, [harmless]) == ()
