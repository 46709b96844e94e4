"""A reference that may not be read: only the comparison needs this permission, so nobody notices
earlier that it is missing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from backfill.api.errors import BackfillError, BadInput, Problem
from backfill.iceberg.library_errors import is_refusal
from backfill.runtime.queries.failure_causes import cause_of

_RAISED = f"{BackfillError.__module__}.{BackfillError.__name__}: "


@contextmanager
def lasting_refusals(
    reference: str | None, field: str, *, in_tasks: bool = False
) -> Iterator[None]:
    """Raises a refusal of access to the reference as an error that no other attempt would fix.

    Args:
        reference: the name of the table; without one nothing is changed.
        field: its path in the spec.
        in_tasks: whether Spark reads, also other tables: only errors that name the table count.

    Raises:
        BadInput: access was refused.
    """
    try:
        yield
    except Exception as error:
        if reference is None or not is_refusal(error):
            raise
        if isinstance(error, BadInput):
            lasting = [replace(problem, may_pass=False) for problem in error.problems]
            raise BadInput(lasting) from error
        cause = cause_of(error).partition("\n")[0].removeprefix(_RAISED)
        if in_tasks and f" of {reference} cannot be read: " not in cause:
            raise
        message = cause if in_tasks else f"{reference} cannot be read: {cause}"
        fix = "grant the application's identity read access to it, then retry"
        raise BadInput(Problem(field, message, fix)) from error
