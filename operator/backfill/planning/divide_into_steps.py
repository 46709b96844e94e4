"""Divides files into steps: pieces, boundaries, splits, totals and proof.

Reads nothing but footers.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.quantities import format_duration, from_us
from backfill.api.spec import OrderingPolicy
from backfill.iceberg.timestamp_units import describe_us
from backfill.planning.ordering_policies import check_promises, step_limits
from backfill.planning.pieces import Pieces, ReadRange, join, row_groups, whole_files, worth_opening
from backfill.planning.plan import PlanHeader, PlanInputs, SourceTotals
from backfill.planning.plan_proof import prove
from backfill.planning.source_files import Int64s
from backfill.planning.source_metadata import ReadSources
from backfill.planning.splits import (
    Opener,
    StepPieces,
    Steps,
    build_splits,
    in_order,
    place,
    share_between_tasks,
    without_empty_steps,
)
from backfill.planning.step_boundaries import MAX_STEPS, StepLimits, TooManyStepsError, make_steps
from backfill.planning.stretches import with_stretches
from backfill.planning.strict_order import check_disorder, place_strictly, with_offsets


def lay_out(read: ReadSources, inputs: PlanInputs) -> tuple[PlanHeader, pa.Table]:
    """The plan for these files: its header, and its splits in the form of
    :func:`backfill.planning.plan.splits_schema`.

    Raises:
        InvalidPlanInput: a file cannot be read, or the range needs too many steps.
        BackfillError: the plan breaks a promise. It is not used.
    """
    span = ReadRange(inputs.read_start_us, inputs.read_end_us)
    opener = Opener(read.files, read.fields, span)
    limits = step_limits(inputs)
    pieces, notes = with_stretches(_pieces(opener, limits), opener, limits)
    steps = _steps(pieces, limits)
    if inputs.policy is OrderingPolicy.STRICT:
        strict = place_strictly(read.files, read.fields, steps, span)
        parts = strict.parts
    else:
        strict, pieces = None, opener.open_astride(pieces, steps)
        parts = place(pieces, steps)
    counted = pieces if strict is None else parts.pieces  # a slice's rows are an estimate
    rows = np.bincount(counted.source, counted.rows, len(read.files)).astype(np.int64)
    del pieces, counted
    if not len(parts.pieces):
        raise _nothing_in_row_groups(read, inputs)
    parts, steps, used = without_empty_steps(parts, steps)
    parts, share = share_between_tasks(parts, opener, inputs.parallelism)
    totals = _totals(parts, len(steps.starts), read, rows)
    parts = in_order(parts, read.files)
    splits = build_splits(parts, share, steps, span, read.files)
    if strict is not None:
        splits = with_offsets(splits, strict, read.files, used)
    starts, ends = tuple(steps.starts.tolist()), tuple(steps.ends.tolist())
    proof = prove(splits, starts, ends, inputs.max_misalignment_us)
    if strict is not None:
        check_disorder(proof, inputs)
    check_promises(proof, inputs)
    header = PlanHeader(
        plan_id=inputs.plan_id(),
        inputs=inputs,
        step_starts_us=starts,
        step_ends_us=ends,
        sources=_with_splits(totals, splits),
        proof=proof,
        warnings=(*read.warnings, *notes),
    )
    return header, splits


def _pieces(opener: Opener, limits: StepLimits) -> Pieces:
    """Pieces for all files. Files that every division into steps must cut, and those at the edges
    of the range, are replaced by their row groups.
    """
    parts = []
    for number, files in enumerate(opener.sources):
        opened = worth_opening(files, opener.span, limits.span_us + limits.reach_us)
        parts.append(whole_files(files, number, opener.span).take(~opened))
        if opened.any():
            parts.append(
                row_groups(
                    files, number, opener.span, np.flatnonzero(opened), opener.fields[number]
                )
            )
    return join(parts)


def _steps(pieces: Pieces, limits: StepLimits) -> Steps:
    try:
        starts, ends = make_steps(pieces, limits)
    except TooManyStepsError:
        raise InvalidPlanInput(
            Problem(
                "spec.maxMisalignment",
                f"would require more than {MAX_STEPS} steps of at most"
                f" {format_duration(from_us(limits.span_us) - from_us(0))} (half of"
                f" maxMisalignment) and {limits.target_bytes} bytes each",
                "raise maxMisalignment or planning.targetStepBytes, or shorten the window",
            )
        ) from None
    return Steps(starts, ends, limits.reach_us)


def _nothing_in_row_groups(read: ReadSources, inputs: PlanInputs) -> InvalidPlanInput:
    tables = ", ".join(files.source.table for files in read.files)
    message = (
        f"no rows of {tables} are between {describe_us(inputs.read_start_us)} and"
        f" {describe_us(inputs.read_end_us)}, although some of their files contain older and newer"
        " rows"
    )
    return InvalidPlanInput(Problem("spec.window", message, "check window and timestampUnit"))


def _totals(parts: StepPieces, steps: int, read: ReadSources, rows: Int64s) -> list[SourceTotals]:
    return [
        _source_totals(parts, steps, number, int(rows[number]), read)
        for number in range(len(read.files))
    ]


def _source_totals(
    parts: StepPieces, steps: int, number: int, rows: int, read: ReadSources
) -> SourceTotals:
    mine = parts.pieces.source == number
    pieces, step = parts.pieces.take(mine), parts.step[mine]
    placed = np.unique(np.stack([pieces.file, step]), axis=1)
    files_read, steps_of_file = np.unique(placed[0], return_counts=True)
    return SourceTotals(
        name=read.files[number].source.name,
        files=len(files_read),
        splits=0,
        rows=rows,
        bytes=int(pieces.bytes.sum()),
        wide_files=int((steps_of_file > 1).sum()),
        files_without_bounds=read.files_without_bounds[number],
        lower_us=int(pieces.lower_us.min()) if len(pieces) else None,
        upper_us=int(pieces.upper_us.max()) if len(pieces) else None,
        input=read.checks[number],
        step_rows=_per_step(step, pieces.rows, steps),
        step_bytes=_per_step(step, pieces.bytes, steps),
    )


def _per_step(step: np.ndarray, amounts: np.ndarray, steps: int) -> tuple[int, ...]:
    return tuple(np.bincount(step, weights=amounts, minlength=steps).astype(np.int64).tolist())


def _with_splits(totals: Sequence[SourceTotals], splits: pa.Table) -> tuple[SourceTotals, ...]:
    counts = {
        row["values"]: row["counts"]
        for row in splits["source"].cast(pa.string()).value_counts().to_pylist()
    }
    return tuple(total.model_copy(update={"splits": counts.get(total.name, 0)}) for total in totals)
