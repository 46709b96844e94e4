"""Whether a source's table has everything that arrived in the range that is read, by what is known
for certain: watermarks of ingestion, Kafka offsets, when rows were committed, and whether the table
continues after the range.

A stretch without rows says nothing: a quiet hour is no lost one. What would be lost by replacing
production's rows is counted before they are replaced.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from backfill.iceberg.timestamp_units import GREATEST_US, describe_us
from backfill.planning.metadata.ingestion_watermark import KNOWN_PROPERTIES, Ingested, latest_us
from backfill.planning.missing_offsets import NOTHING, Offsets, in_words
from backfill.planning.plan import InputCheck, PlanInputs
from backfill.planning.source_files import SourceFiles

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class OtherFiles:
    """What is known of a table besides the files that are read."""

    rows_after: Callable[[], bool]
    """Whether other files have rows from the end of the range on."""
    ingested: Ingested | None = None
    """What ingestion says."""
    no_watermark: str = ""
    """Why it says nothing, although the source names the property."""
    offsets: Offsets = NOTHING
    """What Kafka offsets say."""
    written_us: int = GREATEST_US
    """When its newest rows were committed."""


def check_input(files: SourceFiles, inputs: PlanInputs, around: OtherFiles) -> InputCheck:
    """Whether the files, which are all that have rows of the range, have everything of it."""
    end = inputs.read_end_us
    says = around.ingested
    too_late = files.upper_us >= latest_us(around.written_us, files.source)
    later = (files.upper_us >= end) & ~too_late
    goes_on = bool(later.any()) or around.rows_after()
    promised = says is not None and says.through_us >= end
    missing, unknown = list(in_words(around.offsets.gaps)), []
    reached = goes_on or promised
    behind = not reached
    if not len(files):
        then = "rows arrived later" if goes_on else "no rows arrived later either"
        unknown.append(f"no rows in the input range; {then}")
    if says is not None and not promised and not says.newer_rows:
        reached = False
        early = (
            f"ingestion had written everything up to {_moment(says.through_us)} ({says.property}),"
            f" but the input range ends at {_moment(end)}"
        )
        if says.several:
            unknown.append(
                f"one of several Kafka connectors that write the table is behind: {early}"
            )
        elif says.property in KNOWN_PROPERTIES and not goes_on:  # they stay where no rows are
            unknown.append(f"{early}; the property is not updated while no rows arrive")
        else:
            missing.append(early)
    elif around.no_watermark:
        unknown.append(around.no_watermark)
    if behind and around.written_us < end:
        unknown.append(
            f"the newest rows were committed at {_moment(around.written_us)}, before the end of"
            f" the input range ({_moment(end)})"
        )
    if behind and too_late.any():
        unknown.append(
            f"some files contain rows with timestamps up to {_moment(int(files.upper_us.max()))},"
            " later than the files were committed, so it is unknown up to when other rows arrived"
        )
    if behind and len(files) and not unknown:
        unknown.append(
            f"the newest row arrived at {_moment(int(files.upper_us.max()))}, and none at or after"
            f" the end of the input range ({_moment(end)})"
        )
    known = ""
    if not missing and not unknown:
        known = "rows arrived at or after the end of the input range"
        if says is not None and promised:
            known = (
                f"ingestion had written everything up to {_moment(says.through_us)}"
                f" ({says.property})"
            )
    return InputCheck(
        complete=False if missing else None if unknown else True,
        reached=reached,
        behind=behind,
        known_from=known,
        missing=tuple(missing),
        unknown=tuple(unknown),
        notes=around.offsets.notes,
    )


def check_live_input(files: SourceFiles, inputs: PlanInputs, around: OtherFiles) -> InputCheck:
    """The same for a source that is read up to its newest row, where live traffic continues:
    nothing can be missing at its end. ``inputs`` end right after that row, if there is one.
    """
    if not len(files):
        return InputCheck(
            reached=True,
            unknown=("no rows in the input range; live traffic has all of them",),
        )
    goes_on = replace(around, rows_after=lambda: True, ingested=None, no_watermark="")
    check = check_input(files, inputs, goes_on)
    if check.complete is not True:
        return check
    newest = _moment(inputs.end_us - 1)
    known = f"read up to the newest row ({newest}), where live traffic continues"
    return check.model_copy(update={"known_from": known})


def _moment(moment_us: int) -> str:
    """A moment, to the second, which is precise enough for a person."""
    return describe_us(moment_us // _SECOND_US * _SECOND_US)
