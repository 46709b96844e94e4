"""What operator and pod say to each other about jobs."""

import gzip
import json
import re
from dataclasses import fields
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from backfill.api.errors import BackfillError, InvalidPlanInput, Problem, PublishConflict
from backfill.api.resolved import Origin, Resolved
from backfill.api.spark_application import Application
from backfill.api.spec import Window
from backfill.api.status import ExportStatus, OutputStatus
from backfill.controller.cluster.job_pods.packed_jobs import (
    decode_end,
    decode_job,
    decode_progress,
    encode_end,
    encode_job,
    encode_progress,
)
from backfill.controller.jobs import kinds as kinds_package
from backfill.controller.jobs.any_job import Job, Used
from backfill.controller.jobs.job_messages import Message
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.controller.jobs.kinds.extend import ExtendJob, Extension
from backfill.controller.jobs.kinds.make_plan import PlanJob, PlanResult
from backfill.controller.jobs.kinds.publish import PublishJob, PublishResult
from backfill.controller.jobs.kinds.recover import RecoverJob
from backfill.controller.jobs.kinds.resolve import ResolveJob
from backfill.controller.jobs.kinds.settle import SettleJob, SettleResult, Totals
from backfill.controller.jobs.kinds.undo import UndoJob, UndoResult
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.controller.jobs.staged_outputs import staged_outputs
from backfill.kube.packed_json import packed
from backfill.planning.planning_progress import PlanningProgress
from backfill.planning.workspace import Workspace
from cases import cases
from situations import HEADER, backfill, planned

RESOURCE = backfill(
    planned(),
    overrides={"driver": {"memory": "4g", "labels": {"team": "ads"}}, "sparkConf": {"a": "b"}},
    planning={"targetStepBytes": "64Mi"},
    ttlAfterFinished="7d",
)
STAGED = staged_outputs(RESOURCE)
WINDOW: Window = RESOURCE.spec.window
PLAN = PlanJob.of(RESOURCE, Workspace("s3://lake/a"), 8)
EXTEND = ExtendJob.of(RESOURCE, Workspace("s3://lake/a"), HEADER)
SHORT = RESOURCE.model_copy(update={"spec": RESOURCE.spec.model_copy(update={"sources": ()})})
FOUND = Resolved(
    found_for="0f",
    sources=RESOURCE.spec.sources,
    warm_up="1h",
    origins=(Origin(field="spec.window.warmUp", why="results depend on rows 1h earlier"),),
)
ENDS: list[tuple[Job, object]] = [
    (ResolveJob.of(SHORT, Application(name="app", main_application_file="/app/main.py")), FOUND),
    (
        PLAN,
        PlanResult(
            HEADER,
            (OutputStatus(name="counts", table="lake.ops.counts", base_snapshot_id=2**62 + 1),),
        ),
    ),
    (
        PLAN,
        PlanResult(
            HEADER,
            (),
            ("unknown",),
        ),
    ),
    (RecoverJob(HEADER.plan_id, Workspace("s3://lake/a")), HEADER),
    (VerifyJob(HEADER, 3), None),
    (EXTEND, Extension(HEADER)),
    (EXTEND, Extension(reason="the tables have no newer rows")),
    (
        SettleJob(STAGED, WINDOW),
        SettleResult({"counts": Totals("backfill/january", 5, 1), "none": Totals(None, 0, 0)}),
    ),
    (PublishJob(STAGED[0], WINDOW), PublishResult("counts", 2**62 + 3)),
    (PublishJob(STAGED[0], WINDOW, STAGED), PublishResult("counts", 7)),
    (
        PublishJob(STAGED[0], WINDOW),
        PublishResult("counts", exported=ExportStatus(location="s3://lake/out", files=2, rows=7)),
    ),
    (UndoJob(STAGED, (None,), WINDOW), UndoResult({}, exports=("counts",))),
    (UndoJob(STAGED, (2**62 + 3,), WINDOW), UndoResult({"counts": 2**62 + 5}, "it was rewritten")),
    (UndoJob(STAGED, (1,), WINDOW), UndoResult({}, exports=("counts",), failed="no answer")),
    (DiscardJob("default", "january", RESOURCE.spec, STAGED, Workspace("s3://lake/a")), None),
    (DiscardJob("default", "january", RESOURCE.spec, (), None), None),
]


def test_every_kind_of_job_is_tried_here() -> None:
    kinds = {
        kind
        for module in iter_modules(kinds_package.__path__)
        for name, kind in vars(import_module(f"{kinds_package.__name__}.{module.name}")).items()
        if re.fullmatch(r"\w+Job", name)
    }
    assert {type(job) for job, _ in ENDS} == kinds


def vars_of(job: Any) -> dict[str, Any]:
    """Also what does not make it another job."""
    return {field.name: getattr(job, field.name) for field in fields(job)} | {"kind": type(job)}


@pytest.mark.parametrize("job", [job for job, _ in ENDS])
def test_a_job_arrives_as_it_was_sent_and_always_looks_the_same(job: Job) -> None:
    arrived = decode_job(encode_job(job))
    assert vars_of(arrived) == vars_of(job)
    assert encode_job(decode_job(encode_job(job))) == encode_job(job)


@pytest.mark.parametrize(("job", "result"), ENDS)
def test_a_result_arrives_as_it_was_found(job: Job, result: object) -> None:
    assert decode_end(job, encode_end(job, Message("Done", result=result))) == Message(
        "Done", result=result
    )


@pytest.mark.parametrize(
    "error",
    [
        InvalidPlanInput(
            [Problem("spec.sources[0].table", "is gone", "restore it"), Problem("", "and more")]
        ),
        PublishConflict("the window has changed"),
        BackfillError("no"),
    ],
)
def test_a_deliberate_error_arrives_as_what_it_is(error: BackfillError) -> None:
    end = decode_end(PLAN, encode_end(PLAN, Message("Failed", error=error)))
    assert end.kind == "Failed"
    assert type(end.error) is type(error)
    assert str(end.error) == str(error)


def test_what_a_job_took_arrives_and_who_does_not_tell_is_read_all_the_same() -> None:
    used = Used(seconds=42.5, peak_bytes=300_000_000)
    assert decode_end(PLAN, encode_end(PLAN, Message("Broken", used=used))).used == used
    without = {
        key: value
        for key, value in json.loads(gzip.decompress(encode_end(PLAN, Message("Broken")))).items()
        if key != "used"
    }
    assert decode_end(PLAN, packed(without)).used is None


@pytest.mark.parametrize(
    "used", [{"seconds": float("nan"), "peak_bytes": 1}, {"seconds": 1.0, "peak_bytes": -1}]
)
def test_measurements_that_would_spoil_a_sum_are_refused(used: dict[str, float]) -> None:
    with pytest.raises(BackfillError):
        decode_end(
            PLAN,
            packed({"kind": "Broken", "result": None, "error": None, "cause": "", "used": used}),
        )


def test_what_broke_a_job_arrives_in_words() -> None:
    for kind in ("Broken", "OutOfMemory"):
        end = Message(kind, cause="KeyError: 'user'")  # type: ignore[arg-type]
        assert decode_end(PLAN, encode_end(PLAN, end)) == end


@cases(
    "content",
    {
        "nothing": b"",
        "no gzip": b"no gzip",
        "no JSON": gzip.compress(b"no json"),
        "no object": gzip.compress(b"[]"),
        "a plan without its fields": gzip.compress(
            b'{"kind": "Done", "result": {"header": {}}, "cause": ""}'
        ),
        "an error of no known kind": gzip.compress(
            b'{"kind": "Failed", "error": "exec", "problems": [], "cause": 1}'
        ),
    },
)
def test_what_can_not_be_read_is_an_error_and_not_a_result(content: bytes) -> None:
    try:
        assert decode_end(PLAN, content).kind == "Failed"
    except BackfillError as error:
        assert "versions differ" in str(error)


def test_progress_arrives_and_nonsense_is_no_progress() -> None:
    progress = PlanningProgress("clicks", 3, 7, 1000)
    assert decode_progress(encode_progress(progress)) == progress
    assert decode_progress("") is None
    assert decode_progress("{}") is None
