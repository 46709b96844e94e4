"""Differences between two specs of a Backfill, or between the programs that it runs, that are not
allowed.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from backfill.api.errors import Problem
from backfill.api.manifests.problems import Location, field_path, shown
from backfill.api.spark_application import Application
from backfill.api.spec import BackfillSpec

MUTABLE_FIELDS = (
    "suspend",
    "scaling",
    "overrides",
    "failurePolicy",
    "retryNonce",
    "ttlAfterFinished",
)
"""Fields of a specification that may change at any time."""
ADJUSTABLE_FIELDS = ("maxRowsPerSecond",)
"""Fields of a specification whose value may change at any time, but which cannot be set or removed
then: with them, queries run in another way.
"""
MUTABLE_IN_OUTPUTS = (
    "validate",
    "publish.approval",
    "publish.incomplete",
    "publish.mismatch",
    "publish.maxLoss",
    "publish.allowNull",
    "publish.allowOverlap",
    "publish.deliver",
)
"""Fields of an output that may change at any time: they decide whether its result is published, not
what it is.
"""

_IN_OUTPUTS = "|".join(re.escape(field) for field in MUTABLE_IN_OUTPUTS)
_MUTABLE = re.compile(rf"spec\.({'|'.join(MUTABLE_FIELDS)}|outputs\[\d+\]\.({_IN_OUTPUTS}))\b.*")
_UNSET = object()


def spec_difference(old: BackfillSpec, new: BackfillSpec) -> list[Problem]:
    """Every difference in a field that cannot change once the plan is made: "was X, is Y".

    ``MUTABLE_FIELDS`` and ``MUTABLE_IN_OUTPUTS`` may change at any time, and so may the values of
    ``ADJUSTABLE_FIELDS``; the next attempt uses them.
    """
    before, after = old.to_manifest(), new.to_manifest()
    for field in ADJUSTABLE_FIELDS:
        if field in before and field in after:
            before[field] = after[field]
    changed = _differences(before, after, ("spec",))
    fixed = [problem for problem in changed if not _MUTABLE.fullmatch(problem.field)]
    return [*fixed, *_waived(old, new)]


def _waived(old: BackfillSpec, new: BackfillSpec) -> Iterator[Problem]:
    asked = {output.name for output in old.outputs if output.needs_approval}
    for number, output in enumerate(new.outputs):
        if output.name in asked and not output.needs_approval:
            yield Problem(
                f"spec.outputs[{number}].publish.approval",
                "the result needs approval, which cannot be waived once the plan is made",
                "set it to Manual, and approve the result",
            )


def program_difference(old: Application, new: Application) -> list[Problem]:
    """Every difference that changes what a program computes, as "was X, is Y".

    Differences of tuning and environment are left out.
    """
    changed = _differences(_program(old), _program(new), ("spec",))
    return [
        replace(problem, field=f"SparkApplication/{new.name}: {problem.field}")
        for problem in changed
    ]


def _program(application: Application) -> dict[str, object]:
    return {
        "mainApplicationFile": application.main_application_file,
        "arguments": list(application.arguments),
        "deps": {"pyFiles": list(application.py_files)},
    }


def _differences(old: object, new: object, place: Location) -> Iterator[Problem]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _differences(old.get(key, _UNSET), new.get(key, _UNSET), (*place, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, after, (*place, number))
    else:
        yield Problem(field_path(place), f"was {_in_words(old)}, is {_in_words(new)}")


def _in_words(value: object) -> str:
    return "not set" if value is _UNSET else shown(value)
