"""Whether the sources have everything that the Backfill reads, and what follows from it. Pure."""

from datetime import datetime

from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import Problem
from backfill.api.quantities import from_us
from backfill.api.source import Source
from backfill.api.spec import BackfillSpec
from backfill.controller.decisions.status_draft import Draft
from backfill.planning.plan import InputCheck, PlanHeader

_KIND = ConditionType.INPUT_COMPLETE


def input_checks(header: PlanHeader, now: datetime) -> tuple[InputCheck, ...]:
    """What is known of each source of a plan, in the order of the resource."""
    end = from_us(header.inputs.read_end_us)
    return tuple(source.input.at(now, end) for source in header.sources)


def incomplete_input(
    spec: BackfillSpec, header: PlanHeader, checks: tuple[InputCheck, ...]
) -> tuple[Problem, ...]:
    """Why rows of production must not be replaced: sources that lack rows. Empty if no output does
    so, or where that is allowed.

    A source of which that is unknown is no problem: many tables do not show what they lack.
    """
    modes = " and ".join(sorted(_replacing(spec)))
    if not modes:
        return ()
    return tuple(
        Problem(
            f"spec.sources[{number}].allowIncomplete",
            f"is false, but {source.table} lacks rows that are needed for publish mode {modes}:"
            f" {'; '.join(check.missing)}",
            "wait until the rows have arrived and retry, choose another window, or set this field"
            " to true to replace production's rows anyway",
        )
        for number, (source, check) in enumerate(zip(spec.sources, checks, strict=True))
        if check.complete is False and not source.allow_incomplete
    )


def say_input(draft: Draft, spec: BackfillSpec, checks: tuple[InputCheck, ...]) -> None:
    """Sets condition ``InputComplete``."""
    found = list(zip(spec.sources, checks, strict=True))
    lacking = [(source, check) for source, check in found if check.complete is False]
    unclear = [(source, check) for source, check in found if check.complete is None]
    lines = [
        *(_line(source, missing) for source, check in lacking for missing in check.missing),
        *(_line(source, why) for source, check in found for why in check.unknown),
        *(_line(source, note) for source, check in found for note in check.notes),
    ]
    if lacking:
        allowed = bool(_replacing(spec)) and all(source.allow_incomplete for source, _ in lacking)
        reason = Reason.INCOMPLETE_INPUT_ALLOWED if allowed else Reason.INPUT_INCOMPLETE
        draft.condition(_KIND, "False", reason, "\n".join(lines))
    elif unclear:
        draft.condition(_KIND, "Unknown", Reason.INPUT_UNKNOWN, "\n".join(lines))
    else:
        known = (_line(source, why) for source, check in found for why in check.reasons)
        draft.condition(_KIND, "True", Reason.INPUT_COMPLETE, "\n".join(known))


def _replacing(spec: BackfillSpec) -> set[str]:
    modes = (output.publish.mode for output in spec.outputs)
    return {mode.value for mode in modes if mode.takes_rows_away}


def _line(source: Source, text: str) -> str:
    return f"source {source.name}: {text}"
