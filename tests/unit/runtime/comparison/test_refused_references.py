"""A reference that may not be read is said once, and not tried until all attempts have failed."""

import pytest
from pyiceberg.exceptions import ForbiddenError, ServiceUnavailableError
from requests import HTTPError, Response

from backfill.api.errors import BackfillError, BadInput, InvalidPlanInput, Problem
from backfill.runtime.comparison.compare_outputs import lasting_refusals

FIELD = "spec.outputs[0].validate.reference.table"


def answered(status: int, raised: type[Exception]) -> InvalidPlanInput:
    """What opening a table raises if its catalog answers with a status."""
    response = Response()
    response.status_code = status
    try:
        try:
            raise HTTPError(response=response)
        except HTTPError as error:
            raise raised("said") from error
    except raised as error:
        problem = Problem(FIELD, "table lake.audit.events cannot be loaded: said", may_pass=True)
        wrapped = InvalidPlanInput(problem)
        wrapped.__cause__ = error
        return wrapped


def in_a_task(message: str) -> Exception:
    """What Spark raises if a task has."""
    stack = (
        "Traceback (most recent call last):\n  File reading.py, line 41\n    raise BackfillError"
    )
    kind = f"{BackfillError.__module__}.{BackfillError.__name__}"
    return RuntimeError(f"An exception was thrown from Python worker\n{stack}\n{kind}: {message}")


DENIED = "When reading information for key 'x': AWS Error ACCESS_DENIED during HeadObject operation"


@pytest.mark.parametrize(
    ("error", "in_tasks", "told"),
    [
        (answered(403, ForbiddenError), False, "table lake.audit.events cannot be loaded: said"),
        (PermissionError(13, "Permission denied"), False, "lake.audit.events cannot be read: "),
        (OSError(DENIED), False, "lake.audit.events cannot be read: When reading"),
        (
            in_a_task(f"s3://b/x of lake.audit.events cannot be read: {DENIED}"),
            True,
            "s3://b/x of lake.audit.events cannot be read: When reading",
        ),
    ],
    ids=["the catalog", "a directory", "the store", "the store, in a task"],
)
def test_a_refusal_lasts(error: Exception, in_tasks: bool, told: str) -> None:
    with (
        pytest.raises(BadInput) as raised,
        lasting_refusals("lake.audit.events", FIELD, in_tasks=in_tasks),
    ):
        raise error
    assert not raised.value.may_pass
    assert str(raised.value).startswith(f"{FIELD}: {told}")
    assert str(raised.value).count("\n") == 0


@pytest.mark.parametrize(
    ("error", "in_tasks"),
    [
        (answered(503, ServiceUnavailableError), False),
        (OSError("AWS Error SLOW_DOWN (HTTP status 503)"), False),
        (
            in_a_task(
                "s3://b/access_denied/x of lake.audit.events cannot be read: AWS Error SLOW_DOWN"
            ),
            True,
        ),
        (in_a_task(f"s3://b/x of lake.raw.events cannot be read: {DENIED}"), True),
        (in_a_task("[Errno 13] Permission denied: '/tmp/blockmgr'"), True),
    ],
    ids=["the catalog", "the store", "in a task", "the output itself", "the executor's disk"],
)
def test_what_may_pass_or_concerns_others_is_tried_again(error: Exception, in_tasks: bool) -> None:
    with (
        pytest.raises(type(error)) as raised,
        lasting_refusals("lake.audit.events", FIELD, in_tasks=in_tasks),
    ):
        raise error
    assert raised.value is error


def test_production_has_no_refusals_of_its_own() -> None:
    with pytest.raises(PermissionError), lasting_refusals(None, FIELD):
        raise PermissionError(13, "Permission denied")
