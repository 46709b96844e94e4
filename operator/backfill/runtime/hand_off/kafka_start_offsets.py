"""Where sources continue in Kafka: in each partition, at the offset after history's last row."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.schema import Schema

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.quantities import to_us
from backfill.iceberg.timestamp_units import describe_us
from backfill.planning.plan import Split, extended_plan, read_header, read_splits_of_steps
from backfill.planning.recorded_offsets import (
    offsets_file,
    read_offsets,
    starts_file,
    write_offsets,
)
from backfill.planning.rows.pinned_table import SourceTable, load_source_table
from backfill.planning.rows.row_selection import column_at, kafka_field_ids, path_of
from backfill.planning.workspace import Workspace
from backfill.runtime.source.schemas import spark_schema
from backfill.runtime.source.split_reading import read_split
from backfill.runtime.spark_versions import to_arrow_schema

NextOffsets = Mapping[int, int]
"""By Kafka partition, the offset of the next record."""
READERS = 8
"""Files that are read at once."""
_MOST_NAMED = 3
"""Partitions that a message names."""
_LAST_US = to_us(datetime.max.replace(tzinfo=UTC))
"""The end of year 9999; there are no later times."""


@dataclass(frozen=True, slots=True)
class Held:
    """The records of a partition that Kafka holds."""

    earliest: int
    """Offset of the first one. Kafka has removed all that are older; compaction may have removed
    some of the others, this one among them.
    """
    end: int
    """Offset after the last one."""
    since: int
    """Offset of the first one that is not older than history, or for a source without offsets than
    its starting time; ``end`` if there is none.
    """
    newest_us: int | None = None
    """Time of the first one that is not older than the newest row of history, or than that starting
    time; None if there is none.
    """
    first: int | None = None
    """Offset of the first one that compaction has left, if that is not ``earliest``; ``end`` if
    there is none.
    """

    @property
    def none_is_older(self) -> bool:
        """Whether there is no record before ``since``."""
        return self.since == (self.earliest if self.first is None else self.first)


@dataclass(frozen=True, slots=True)
class Retention:
    """What Kafka removes of a topic by itself."""

    us: int | None
    """The age in microseconds until which records are kept; None if for good, or if it is unknown.
    """
    limited_by_size: bool
    """Whether records are also removed where they take too much space."""


def offsets_after_history(plan: Workspace, source: str, kept: Workspace) -> NextOffsets:
    """By Kafka partition, the offset after the greatest one of the rows that a plan reads of a
    source. A partition without rows is left out.

    The rows are pinned, so it is determined once and kept in ``kept`` for later attempts.

    Raises:
        InvalidPlanInput: a row has no partition or offset, or a file cannot be read.
    """
    header = read_header(plan)
    name = offsets_file(header.inputs.own_id(), source)
    known = read_offsets(kept, name)
    if known is not None:
        return known
    described = next(each for each in header.inputs.sources if each.name == source)
    table = load_source_table(described)
    found, steps = dict[int, int](), range(header.steps)
    if header.inputs.extends is not None:
        before = extended_plan(plan, header.inputs)
        found |= offsets_after_history(before, source, kept)
        steps = range(read_header(before).steps, header.steps)
    files = files_of(plan, source, steps)
    with ThreadPoolExecutor(READERS) as pool:
        for greatest in pool.map(lambda split: _greatest(table, split), files):
            for partition, offset in greatest.items():
                found[partition] = max(offset + 1, found.get(partition, 0))
    write_offsets(kept, name, found)
    return found


def with_empty_partitions(
    plan_id: str, source: str, history: NextOffsets, kafka: Mapping[int, Held], kept: Workspace
) -> NextOffsets:
    """The offsets after history, with those of partitions without rows: there it is the first
    record that is not older than history, as Kafka was when it was first asked.

    This is kept in ``kept``: otherwise records that Kafka removes while history is read would be
    missing without an error, as others would then be the first ones.
    """
    known = known_starts(plan_id, source, kept)
    starts = {each: held.since for each, held in kafka.items() if each not in history} | known
    if starts != known:
        write_offsets(kept, starts_file(plan_id, source), starts)
    return {**starts, **history}


def known_starts(plan_id: str, source: str, kept: Workspace) -> dict[int, int]:
    """By Kafka partition, where those without rows continue, as determined before."""
    return read_offsets(kept, starts_file(plan_id, source)) or {}


def check_reaches_back(
    field: str,
    topic: str,
    starting_us: int,
    kafka: Mapping[int, Held],
    *,
    retention: Retention,
    now_us: int,
) -> None:
    """Checks that Kafka holds older records of these partitions than those of a starting time, or
    has removed none since then: otherwise some of them may be lost.

    Records are removed by their age, which has not reached them if the retention is longer than the
    time is ago. Where it does not explain what was removed, because size limits the topic or
    records are kept for good, others may be missing as well; but not where Kafka holds nothing at
    all, as in partitions that are seldom used.

    Raises:
        InvalidPlanInput: records may be lost.
    """
    kept_since_us = None if retention.us is None else now_us - retention.us
    too_old = kept_since_us is not None and starting_us < kept_since_us
    # nothing is older than 1970, so such a retention is for good
    by_age = kept_since_us is not None and kept_since_us >= 0 and not retention.limited_by_size
    lost = [
        f"partition {partition} begins at offset {held.earliest}"
        for partition, held in sorted(kafka.items())
        if held.earliest > 0
        and held.none_is_older
        and (too_old or (held.earliest < held.end and not by_age))
    ]
    if lost:
        raise InvalidPlanInput(
            Problem(
                field,
                f"Kafka may no longer retain records of topic {topic} from"
                f" {describe_us(starting_us)} on, where live traffic continues: all retained"
                f" records are newer ({_some(lost)})",
                "wait until the table has newer rows and create the Backfill again, so that it"
                " reads a newer snapshot; a longer retention does not restore removed records",
            )
        )


def check_times_fit(field: str, topic: str, starting_us: int, kafka: Mapping[int, Held]) -> None:
    """Checks that Kafka has records since a starting time, as history has rows. Otherwise its
    timestamps are not comparable with those of the table, and live traffic would continue at the
    end.

    Raises:
        InvalidPlanInput: all records that it holds are older.
    """
    holding = [held for held in kafka.values() if held.earliest < held.end]
    if holding and all(held.since == held.end for held in holding):
        raise InvalidPlanInput(
            Problem(
                field,
                f"topic {topic} has no record at or after {describe_us(starting_us)}, but history"
                " has rows after that time",
                "set kafka.timestampColumn to the column with the record timestamps, or increase"
                " handOff.startingTimestampMargin; check that the table was filled from this"
                " topic",
            )
        )


def check_held(field: str, topic: str, following: NextOffsets, kafka: Mapping[int, Held]) -> None:
    """Checks that Kafka holds all records from these offsets on.

    Raises:
        InvalidPlanInput: Kafka no longer holds a record after history, or has another topic of this
            name.
    """
    lost, beyond = [], []
    for partition, offset in sorted(following.items()):
        held = kafka.get(partition)
        if held is None:
            beyond.append(f"partition {partition} does not exist")
        elif held.end < offset:
            beyond.append(f"partition {partition} ends at offset {held.end}")
        elif held.earliest > offset:
            lost.append(f"{offset} to {held.earliest - 1} of partition {partition}")
    problems = []
    if lost:
        problems.append(
            Problem(
                field,
                f"Kafka no longer retains records of topic {topic} that come after the last row of"
                f" history: offsets {_some(lost)}",
                "wait until the table has these records and create the Backfill again, so that it"
                " reads a newer snapshot; or give the topic a longer retention",
            )
        )
    if beyond:
        problems.append(
            Problem(
                field,
                f"history contains rows that topic {topic} never had: {_some(beyond)}",
                "set the topic and the cluster that the table was filled from; a recreated topic"
                " starts at offset 0 again and cannot continue this history",
            )
        )
    if problems:
        raise InvalidPlanInput(problems)


def still_held(following: NextOffsets, kafka: Mapping[int, Held]) -> NextOffsets:
    """These offsets, or the first ones after them that Kafka still holds."""
    return {
        each: max(offset, kafka[each].earliest) if each in kafka else offset
        for each, offset in following.items()
    }


def kept_until_us(
    following: NextOffsets,
    kafka: Mapping[int, Held],
    newest_us: int,
    retention_us: int | None,
    now_us: int,
) -> int | None:
    """Until when Kafka keeps the records of a topic from these offsets on, at least. None if it
    keeps them for good, which a retention that leads beyond year 9999 means as well.

    In a partition they are no older than the first record that follows the newest row of history,
    or than that row if there is no such record. Those that are still to come are kept from now on.
    """
    if retention_us is None:
        return None
    oldest = (
        newest_us if held.newest_us is None else held.newest_us
        for partition, held in kafka.items()
        if held.end > following[partition]
    )
    until = min(oldest, default=now_us) + retention_us
    return until if until <= _LAST_US else None


def _some(parts: list[str]) -> str:
    more = len(parts) - _MOST_NAMED
    return ", ".join(parts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def files_of(plan: Workspace, source: str, steps: range) -> list[Split]:
    """A split for each file of a source, with all rows that these steps read of it."""
    files: dict[str, Split] = {}
    for split in read_splits_of_steps(plan, steps, source):
        known = files.get(split.path)
        files[split.path] = replace(split if known is None else _both(known, split), offsets=())
    return list(files.values())


def _both(one: Split, other: Split) -> Split:
    """What two splits of a file read. Their time slices follow one another."""
    start, end, groups = one.slice_start_us, one.slice_end_us, one.row_groups
    if start is not None:
        start = None if other.slice_start_us is None else min(start, other.slice_start_us)
    if end is not None:
        end = None if other.slice_end_us is None else max(end, other.slice_end_us)
    if groups is not None:
        more = other.row_groups
        groups = None if more is None else tuple(sorted({*groups, *more}))
    return replace(
        one,
        slice_start_us=start,
        slice_end_us=end,
        row_groups=groups,
        lower_us=min(one.lower_us, other.lower_us),
        upper_us=max(one.upper_us, other.upper_us),
    )


def _greatest(table: SourceTable, split: Split) -> dict[int, int]:
    """By Kafka partition, the greatest offset among the rows of a file."""
    opened = table.open()
    struct = opened.schema.as_struct()
    paths = [path_of(struct, each) or [] for each in kafka_field_ids(opened)]
    schema = Schema.model_validate_json(table.schema_json)
    target = to_arrow_schema(spark_schema(schema, table.source.table))
    greatest: dict[int, int] = {}
    for batch in read_split(table, split, target, frozenset(path[0] for path in paths)):
        partitions, offsets = (column_at(batch, path).cast(pa.int64()) for path in paths)
        if partitions.null_count or offsets.null_count:
            raise InvalidPlanInput(
                Problem(
                    "spec.sources",
                    f"{split.path} of {table.source.table} has rows without a Kafka partition or"
                    " offset, so it is unknown where live traffic continues",
                    "fill in the columns kafka.partitionColumn and kafka.offsetColumn",
                )
            )
        rows = pa.table({"partition": partitions, "offset": offsets})
        found = rows.group_by("partition").aggregate([("offset", "max")])
        for row in found.to_pylist():
            before = greatest.get(row["partition"], row["offset_max"])
            greatest[row["partition"]] = max(before, row["offset_max"])
    return greatest
