"""A result that does not match production is not published before a person says so."""

from typing import Any

import pytest

from backfill.api.approval import undecidable
from backfill.api.backfill import Backfill
from backfill.api.conditions import Condition, ConditionType, Reason, find_condition
from backfill.api.errors import InvalidPlanInput
from backfill.api.output import Output
from backfill.api.status import BackfillStatus, Comparison, Verdict
from backfill.api.validation import percentage, reaches, settings_digest
from backfill.controller.decisions.actions import Decision, Next, StartDriver, StartJob
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.validated_condition import validated
from backfill.controller.driver import DriverState, Launch, driver_settings
from backfill.controller.jobs.kinds.publish import PublishJob
from backfill.controller.jobs.kinds.settle import SettleJob
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.planning.workspace import Workspace
from backfill.protocol.split_assignment import OutputComparison
from situations import (
    HEADER,
    STEPS,
    assigned,
    attempt,
    backfill,
    decided,
    job_state,
    observed,
    planned,
    reported,
    with_condition,
)

KEYED = {"keys": ["id"], "minMatch": "99.9"}
REFERENCE = {"against": "Reference", "reference": {"table": "lake.audit.counts"}}
EXITED = DriverState("Exited", exit_status=0)


def output(validate: dict[str, Any] | None = KEYED, mode: str = "Append", **publish: str) -> Any:
    return {
        "name": "counts",
        "table": "lake.ops.counts",
        "timestampColumn": "at",
        "publish": {"mode": mode, **publish},
        **({} if validate is None else {"validate": validate}),
    }


def compared(validate: dict[str, Any] = KEYED, **fields: Any) -> OutputComparison:
    settings = settings_digest(Output.model_validate(output(validate)))
    return OutputComparison(output="counts", settings=settings, report="/work/r.json", **fields)


def as_recorded(comparison: OutputComparison) -> Comparison:
    return Comparison(**{name: getattr(comparison, name) for name in Comparison.model_fields})


def settled(comparison: OutputComparison | None = None, **fields: Any) -> BackfillStatus:
    found = {"open_at_end": 0}
    if comparison is not None:
        found |= {"comparison": as_recorded(comparison), "match": percentage(comparison)}  # type: ignore[dict-item]
    status = planned(
        attempts=(attempt(outcome="Succeeded"),), committed=STEPS, output=found | fields
    )
    return with_condition(status, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)


def publishes(decision: Decision) -> bool:
    jobs = (action.job for action in decision.next.actions if isinstance(action, StartJob))
    return any(isinstance(job, PublishJob) for job in jobs)


def condition(decision: Decision, kind: ConditionType) -> Condition:
    found = find_condition(decision.status.conditions, kind)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("matching", "rows", "min_match", "enough"),
    [
        (999, 1000, "99.9", True),
        (99_899, 100_000, "99.9", False),
        (99_995, 100_000, "100", False),
        (10**15 - 1, 10**15, "100", False),
        (10**15 - 1, 10**15, "99.9999999999999", True),
        (0, 0, "100", True),
        (0, 5, "0", True),
        (1, 3, "33.333333333333", True),
        (1, 3, "33.333333333334", False),
    ],
)
def test_the_gate_is_exact(matching: int, rows: int, min_match: str, enough: bool) -> None:
    found = Comparison(settings="", matching=matching, missing=rows - matching)
    assert reaches(found, min_match) is enough


@pytest.mark.parametrize(
    ("matching", "rows", "shown"),
    [
        (99_995, 100_000, "99.995"),
        (10**9 - 1, 10**9, "99.9999"),
        (10**15 - 1, 10**15, "99.9999"),
        (7, 7, "100"),
        (0, 0, "100"),
        (2, 3, "66.6666"),
        (1, 10**7, "0"),
    ],
)
def test_a_percentage_is_never_rounded_up(matching: int, rows: int, shown: str) -> None:
    assert percentage(Comparison(settings="", matching=matching, extra=rows - matching)) == shown


def test_a_result_that_matches_is_published() -> None:
    found = compared(matching=999, different=1)
    decision = decide(observed(backfill(settled(found), outputs=[output()])))
    assert publishes(decision)
    told = condition(decision, ConditionType.VALIDATED)
    assert (told.status, told.reason) == ("True", Reason.MATCHED)
    assert told.message == (
        "counts: 99.9 % of 1,000 rows match production (1 different); report: /work/r.json"
    )


def test_a_single_row_is_not_counted_in_the_plural() -> None:
    decision = decide(observed(backfill(settled(compared(matching=1)), outputs=[output()])))
    told = condition(decision, ConditionType.VALIDATED)
    assert told.message == "counts: 100 % of 1 row matches production; report: /work/r.json"


def test_a_result_that_does_not_match_waits_and_says_what_differs() -> None:
    found = compared(matching=990, different=7, missing=2, extra=1)
    decision = decide(observed(backfill(settled(found), outputs=[output()])))
    assert not publishes(decision)
    assert decision.next.at_rest
    told = condition(decision, ConditionType.VALIDATED)
    assert (told.status, told.reason) == ("False", Reason.BELOW_MIN_MATCH)
    waits = condition(decision, ConditionType.PUBLISHED)
    assert waits.reason == Reason.WAITING_FOR_APPROVAL
    assert (
        "counts: 99 % of 1,000 rows match production (7 different, 2 only in production, 1 only in"
        " the result), less than minMatch 99.9 %; report: /work/r.json"
    ) in waits.message.splitlines()


def test_what_the_report_says_first_is_said_to_whoever_decides() -> None:
    causes = ("288 of 288 rows differ in n: the result is exactly 0.5 times production.", "b", "c")
    found = compared(matching=0, different=288).model_copy(update={"causes": causes})
    decision = decide(observed(backfill(settled(found), outputs=[output()])))
    said = condition(decision, ConditionType.PUBLISHED).message.splitlines()
    assert {*causes} & {*said} == {*causes[:2]}, "the others are in the report"


def test_a_reference_is_named_wherever_the_result_is_compared_with_it() -> None:
    wish = {**KEYED, **REFERENCE}
    outputs = [output(wish, "Replace")]
    running = observed(
        backfill(planned(attempts=(attempt(),), committed=STEPS), outputs=outputs),
        driver=DriverState("Running"),
        report=reported("Running", STEPS + 1, comparing="counts"),
        assignment=assigned(released=STEPS),
    )
    told = condition(decide(running), ConditionType.VALIDATED)
    assert told.message == "comparing counts with the reference lake.audit.counts"
    found = compared(wish, matching=999, missing=1, reference="lake.audit.counts")
    decision = decide(observed(backfill(settled(found), outputs=outputs)))
    assert not publishes(decision), (
        "the rows of production that Replace takes away were not compared"
    )
    assert condition(decision, ConditionType.VALIDATED).message == (
        "counts: 99.9 % of 1,000 rows match the reference lake.audit.counts (1 only in the"
        " reference); report: /work/r.json"
    )
    failed = compared(wish, problem="it has equality deletes", reference="lake.audit.counts")
    decision = decide(observed(backfill(settled(failed), outputs=outputs)))
    assert condition(decision, ConditionType.VALIDATED).message == (
        "counts could not be compared with the reference lake.audit.counts: it has equality deletes"
    )


def test_a_person_may_publish_it_all_the_same_once_it_waits() -> None:
    resource = backfill(settled(compared(missing=5)), outputs=[output()])
    assert undecidable(resource, Verdict.APPROVE), "what does not match is unknown yet"
    waiting = resource.model_copy(update={"status": decide(observed(resource)).status})
    assert not undecidable(waiting, Verdict.APPROVE)
    approval = decided(waiting.status, Verdict.APPROVE)
    assert publishes(decide(observed(waiting, decisions=(approval,))))
    spec = {"outputs": [output(mismatch="Publish")]}
    assert publishes(decide(observed(backfill(waiting.status, **spec))))


def test_a_result_that_can_not_be_compared_waits() -> None:
    found = compared(problem="column place cannot be compared; add place to validate.ignore")
    status = settled()
    recorded = status.outputs[0].model_copy(update={"comparison": as_recorded(found)})
    status = status.model_copy(update={"outputs": (recorded,)})
    decision = decide(observed(backfill(status, outputs=[output()])))
    assert not publishes(decision)
    told = condition(decision, ConditionType.VALIDATED)
    assert (told.status, told.reason) == ("False", Reason.NOT_COMPARABLE)
    assert "add place to validate.ignore" in told.message


def test_a_result_that_is_not_published_anyway_is_finished_and_says_what_differs() -> None:
    found = compared(matching=1, missing=1)
    decision = decide(observed(backfill(settled(found), outputs=[output(mode="None")])))
    told = condition(decision, ConditionType.SUCCEEDED)
    assert told.status == "True"
    assert "50 % of 2 rows match production" in told.message


def finishing(**report: Any) -> Decision:
    status = planned(attempts=(attempt(),), committed=STEPS)
    return decide(
        observed(
            backfill(status, outputs=[output()]),
            driver=EXITED,
            report=reported("Finished", STEPS + 1, **report),
            assignment=assigned(released=STEPS),
        )
    )


def test_what_a_driver_has_compared_is_recorded() -> None:
    found = compared(matching=3, missing=1, snapshot_id=7)
    decision = finishing(comparisons=(found,))
    (status,) = decision.status.outputs
    assert (status.match, status.comparison) == ("75", as_recorded(found))
    assert decision.status.attempts[-1].outcome == "Succeeded"


def test_an_attempt_that_did_not_compare_has_failed_and_another_follows() -> None:
    decision = finishing()
    assert decision.status.attempts[-1].outcome == "Failed"
    assert "without comparing the result of counts" in decision.status.attempts[-1].message
    assert condition(decision, ConditionType.RUNNING).reason == Reason.BACKING_OFF


def test_it_is_said_that_a_driver_compares() -> None:
    status = planned(attempts=(attempt(),), committed=STEPS)
    decision = decide(
        observed(
            backfill(status, outputs=[output()]),
            driver=DriverState("Running"),
            report=reported("Running", STEPS + 1, comparing="counts"),
            assignment=assigned(released=STEPS),
        )
    )
    told = condition(decision, ConditionType.VALIDATED)
    assert (told.status, told.reason) == ("Unknown", Reason.COMPARING)
    assert told.message == "comparing counts with production"


@pytest.mark.parametrize(
    "validate",
    [{"keys": ["id"], "ignore": ["written"]}, {"keys": ["id", "at"]}, {}, {**KEYED, **REFERENCE}],
)
def test_a_result_is_compared_anew_if_another_comparison_is_asked_for(
    validate: dict[str, Any],
) -> None:
    resource = backfill(settled(compared(missing=5)), generation=2, outputs=[output(validate)])
    decision = decide(observed(resource))
    (job,) = (each.job for each in decision.next.actions if isinstance(each, StartJob))
    assert isinstance(job, VerifyJob)
    ready = resource.model_copy(update={"status": decision.status})
    second = decide(observed(ready, job=job_state(VerifyJob(HEADER, attempt=2), "Done")))
    assert [each.attempt for each in second.next.actions if isinstance(each, StartDriver)] == [2]


def test_another_percentage_needs_no_comparison() -> None:
    less = backfill(
        settled(compared(matching=9, missing=1)),
        generation=2,
        outputs=[output({"keys": ["id"], "minMatch": "90"})],
    )
    assert publishes(decide(observed(less)))


def test_a_result_is_settled_after_it_was_compared_once_more() -> None:
    status = settled(compared(matching=1))
    status = with_condition(status, ConditionType.RUNNING, "True", Reason.REPLAYING)
    decision = decide(observed(backfill(status, outputs=[output()])))
    (job,) = (each.job for each in decision.next.actions if isinstance(each, StartJob))
    assert isinstance(job, SettleJob)


def test_without_validate_nothing_is_said_of_it() -> None:
    resource: Backfill = backfill(settled(compared(missing=1)), outputs=[output(None)])
    decision = decide(observed(resource))
    assert publishes(decision)
    assert find_condition(decision.status.conditions, ConditionType.VALIDATED) is None


def test_what_waited_does_not_wait_while_it_is_compared_once_more() -> None:
    resource = backfill(settled(compared(missing=5)), outputs=[output()])
    waiting = decide(observed(resource)).status
    assert not undecidable(resource.model_copy(update={"status": waiting}), Verdict.APPROVE)
    other = backfill(waiting, generation=2, outputs=[output({"keys": ["id", "at"]})])
    decision = decide(observed(other))
    assert find_condition(decision.status.conditions, ConditionType.PUBLISHED) is None
    assert condition(decision, ConditionType.RECONCILING).status == "True"
    comparing = other.model_copy(update={"status": decision.status})
    assert undecidable(comparing, Verdict.APPROVE), "what does not match is unknown yet"


@pytest.mark.parametrize("published", [None, 8])
def test_only_what_is_not_published_is_compared(published: int | None) -> None:
    status = settled(compared(missing=1), snapshot_id=published)
    place = Workspace("/work")
    launch = Launch(2, backfill(status, outputs=[output()]), "p", place, place)
    settings = driver_settings(
        launch, channel="/c", main_file="app.py", arguments=(), spark_conf={}
    )
    assert [each.validate_ is None for each in settings.outputs] == [published is not None]


def test_what_is_published_keeps_what_was_found_whatever_is_asked_then() -> None:
    status = settled(compared(matching=10), snapshot_id=8)
    asked = output({"keys": ["id", "at"]})
    decision = decide(observed(backfill(status, generation=2, outputs=[asked])))
    told = condition(decision, ConditionType.VALIDATED)
    assert (told.status, told.reason) == ("True", Reason.MATCHED)
    assert "less than" not in condition(decision, ConditionType.SUCCEEDED).message


@pytest.mark.parametrize("now", [None, {"keys": ["id", "at"]}])
def test_what_was_found_is_said_as_it_was_when_something_else_is_asked(now: Any) -> None:
    (status,) = settled(compared(matching=10)).outputs
    asked = Output.model_validate(output(now))
    assert validated(asked, status) == (
        "counts: 100 % of 10 rows match production; report: /work/r.json"
    )


def test_credentials_in_what_could_not_be_compared_are_not_recorded() -> None:
    found = compared(problem="cannot open s3://lake/a?X-Amz-Signature=0123456789abcdef")
    (status,) = finishing(comparisons=(found,)).status.outputs
    assert status.comparison is not None
    assert "0123456789abcdef" not in status.comparison.problem
    assert "cannot open s3://lake/a" in status.comparison.problem


@pytest.mark.parametrize(
    ("generation", "mismatch", "again"),
    [(1, "Wait", False), (2, "Wait", True), (2, "Publish", False)],
)
def test_what_could_not_be_compared_is_tried_again_once_something_was_changed(
    generation: int, mismatch: str, again: bool
) -> None:
    found = compared(problem="the table has equality deletes; compact it")
    status = settled(found, match=None)
    asked = output(mismatch=mismatch)
    resource = backfill(status, generation=generation, outputs=[asked], retryNonce="compacted")
    decision = decide(observed(resource))
    jobs = [each.job for each in decision.next.actions if isinstance(each, StartJob)]
    assert any(isinstance(job, VerifyJob) for job in jobs) is again
    assert publishes(decision) is (mismatch == "Publish")


def test_a_result_whose_sources_expired_waits_again_once_the_old_comparison_is_asked_for() -> None:
    found = compared(missing=5)
    other = backfill(settled(found), generation=2, outputs=[output({"keys": ["at"]})])
    gone = job_state(VerifyJob(HEADER, attempt=2), "Failed", error=InvalidPlanInput(()))
    failed = decide(observed(other, job=gone)).status
    assert condition(Decision(failed, Next()), ConditionType.SUCCEEDED).status == "False"
    before = backfill(failed, generation=3, outputs=[output()])
    (job,) = (
        each.job for each in decide(observed(before)).next.actions if isinstance(each, StartJob)
    )
    assert isinstance(job, SettleJob), "it is counted, and then waits"
