"""Plans over random tables, read through the product's reader, against plain Python that knows what
is in the tables.

Nothing is read twice, no deleted row, no wrong value; the order that was asked for is kept; the
header says what is true.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from planned_rows import PlannedRow, rows_of_plan, rows_of_run
from pyiceberg.catalog import Catalog
from random_filters import Meaning, random_filter
from random_tables import HOURS, START_S, FileRow, RandomTable, make_table

from backfill.api.errors import InvalidPlanInput
from backfill.api.quantities import format_time, from_us
from backfill.api.spec import BackfillSpec, OrderingPolicy
from backfill.planning.plan import PlanHeader, plan_directory, read_splits_of_steps
from backfill.planning.planner import make_plan, verify_files
from backfill.planning.workspace import Workspace
from backfill.runtime.source.split_reading import count_rows

SECOND_US = 1_000_000
TABLES, TABLES_SLOW = 16, 48


@dataclass(frozen=True)
class Asked:
    """A Backfill, and what it has to read."""

    spec: BackfillSpec
    tables: list[RandomTable]
    filters: list[list[Meaning]]
    start_us: int
    end_us: int

    @property
    def policy(self) -> OrderingPolicy:
        return self.spec.ordering.policy

    @property
    def lateness_us(self) -> int:
        return (
            0
            if self.policy is OrderingPolicy.EXACT
            else int(self.spec.ordering.allowed_lateness.total_seconds() * SECOND_US)
        )

    def wanted(self, number: int) -> list[FileRow]:
        """The rows to read of a source."""
        table = self.tables[number]
        low, high = (_ticks_at(moment, table) for moment in (self.start_us, self.end_us))
        inside = (
            row
            for row in table.rows
            if not row.deleted and row.arrival is not None and low <= row.arrival < high
        )
        return [
            row
            for row in inside
            if all(means(row.values) is True for means in self.filters[number])
        ]


def _ticks_at(moment_us: int, table: RandomTable) -> int:
    return -(-moment_us * table.ticks // SECOND_US)


def _ask(rng: Random, tables: list[RandomTable]) -> Asked:
    start = START_S + rng.randrange(-1, HOURS - 2) * 3600 + rng.choice([0, 0, 1, 1799])
    length = rng.choice([1800, 4 * 3600, 8 * 3600, 24 * 3600])
    warm_up, drain = rng.choice([0, 0, 3600]), rng.choice([0, 600])
    policy = rng.choice(list(OrderingPolicy))
    if policy is OrderingPolicy.STRICT and any(table.kafka is None for table in tables):
        policy = OrderingPolicy.WITHIN_LATENESS
    lateness = "7d" if policy is OrderingPolicy.STRICT else rng.choice(["0s", "5m", "1h"])
    filters: list[list[Meaning]] = []
    sources = []
    for table in tables:
        source: dict[str, Any] = {
            "name": table.name,
            "table": f"lake.raw.{table.name}",
            "timestampColumn": table.arrival_name,
        }
        if table.unit is not None:
            source["timestampUnit"] = table.unit
        if table.kafka is not None:
            source["kafka"] = {
                "partitionColumn": table.kafka[0],
                "offsetColumn": table.kafka[1],
                "dropDuplicates": Random(f"{table.name} {start} {length}").random() < 0.5,
            }
        meanings: list[Meaning] = []
        others = table.columns[1:]
        if others and rng.random() < 0.4 and len(others) > 1:
            text, means = random_filter(rng, others)
            source["filter"] = text
            meanings.append(means)
        texts = [each for each in others if each.kind == "text"]
        if texts and rng.random() < 0.3:
            column, values = texts[0].name, rng.sample(["eu", "us", "it's", "é", "none", "a\\"], 3)
            source["regions"] = {"column": column, "in": values}
            meanings.append(lambda row, column=column, values=values: row[column] in values)
        filters.append(meanings)
        sources.append(source)
    spec = BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "app"},
            "window": {
                "start": format_time(from_us(start * SECOND_US)),
                "end": format_time(from_us((start + length) * SECOND_US)),
                "warmUp": f"{warm_up}s",
                "drain": f"{drain}s",
            },
            "sources": sources,
            "ordering": {"policy": policy.value, "allowedLateness": lateness},
            "maxMisalignment": rng.choice(["10m", "1h", "6h"]),
            "planning": {"targetStepBytes": rng.choice([None, 4096, 65536])},
        }
    )
    return Asked(
        spec, tables, filters, (start - warm_up) * SECOND_US, (start + length + drain) * SECOND_US
    )


def _check(asked: Asked, header: PlanHeader, workspace: Workspace) -> int:
    """Compares all that is read with what the tables hold; how many rows that were."""
    read = list(rows_of_plan(header, workspace))
    for number, table in enumerate(asked.tables):
        wanted = Counter(_shown(_given(row.values, table)) for row in asked.wanted(number))
        found = Counter(_shown(row.values) for row in read if row.source == table.name)
        if asked.spec.sources[number].kafka.drop_duplicates:
            assert found <= wanted, f"{table.name}: too many {found - wanted}"
            twice = wanted - found
            _check_duplicates(asked, number, [row for row in read if row.source == table.name])
            assert bool(twice) == any(
                "dropDuplicates" in note for note in header.sources[number].input.notes
            )
        else:
            assert found == wanted, (
                f"{table.name}: too many {found - wanted}, missing {wanted - found}"
            )
        _check_runs(table, header, workspace, read)
    _check_header(asked, header, workspace, read)
    if asked.policy is not OrderingPolicy.UNORDERED:
        _check_order(asked, header, read)
    if asked.policy is OrderingPolicy.STRICT:
        _check_offsets(asked, read)
    return len(read)


def _check_duplicates(asked: Asked, number: int, read: list[PlannedRow]) -> None:
    """Of the rows of a source with the same partition and offset, one is read."""
    columns = asked.tables[number].kafka
    assert columns is not None
    records = Counter(tuple(row.values[name] for name in columns) for row in read)
    wanted = Counter(row.kafka for row in asked.wanted(number))
    assert records == Counter(
        {record: times if None in record else 1 for record, times in wanted.items()}
    )


def _check_runs(
    table: RandomTable, header: PlanHeader, workspace: Workspace, read: list[PlannedRow]
) -> None:
    """Steps that are read together give the rows of each of them, no more and no fewer."""
    middle = header.steps // 2
    for steps, most_bytes in ((range(header.steps), 2**40), (range(middle, header.steps), 1)):
        wanted = Counter(
            _shown(row.values) for row in read if row.source == table.name and row.step in steps
        )
        found = Counter(
            _shown(row) for row in rows_of_run(header, workspace, table.name, steps, most_bytes)
        )
        assert found == wanted, f"{steps}: {found - wanted} too many, {wanted - found} missing"


def _given(values: dict[str, Any], table: RandomTable) -> dict[str, Any]:
    """The row as Spark has it: nanoseconds are microseconds there."""
    if table.unit is not None or table.finest == 1:
        return values
    return _with_arrival(values, table.arrival, table.finest)


def _with_arrival(values: dict[str, Any], path: tuple[str, ...], divisor: int) -> dict[str, Any]:
    first, rest = path[0], path[1:]
    inner = values[first]
    if inner is None:
        return values
    return {**values, first: _with_arrival(inner, rest, divisor) if rest else inner // divisor}


def _shown(values: dict[str, Any]) -> str:
    return repr(sorted(values.items()))


def _arrival_us(row: PlannedRow, asked: Asked) -> float:
    """When a row arrived, in microseconds; as exactly as the application can know it."""
    table = next(each for each in asked.tables if each.name == row.source)
    value: Any = row.values
    for name in table.arrival:
        value = value[name]
    return value if table.unit is None else value * SECOND_US / table.ticks


def _check_order(asked: Asked, header: PlanHeader, read: list[PlannedRow]) -> None:
    starts, ends = header.step_starts_us, header.step_ends_us
    moments = [(row.step, _arrival_us(row, asked)) for row in read]
    strict = asked.policy is OrderingPolicy.STRICT
    for step, moment in moments:
        assert moment < ends[step] + asked.lateness_us + 1
        assert strict or moment >= starts[step]
    newest = float("-inf")
    for step in range(header.steps):
        now = [moment for each, moment in moments if each == step]
        assert not now or newest - min(now) <= min(
            header.proof.greatest_disorder_us, asked.lateness_us
        )
        newest = max([newest, *now])
    limit = int(asked.spec.max_misalignment.total_seconds() * SECOND_US)
    for first in range(header.steps):
        for step, moment in moments:
            if step == first or (step > first and ends[step] <= starts[first] + limit):
                assert (
                    moment - starts[first]
                    <= header.proof.greatest_misalignment_us
                    <= limit + asked.lateness_us
                )


def _check_offsets(asked: Asked, read: list[PlannedRow]) -> None:
    last: dict[tuple[str, int], tuple[int, int]] = {}
    for row in read:
        table = next(each for each in asked.tables if each.name == row.source)
        assert table.kafka is not None
        key = row.source, row.values[table.kafka[0]]
        now = row.step, row.values[table.kafka[1]]
        assert key not in last or last[key] <= now
        last[key] = now


def _check_header(
    asked: Asked, header: PlanHeader, workspace: Workspace, read: list[PlannedRow]
) -> None:
    starts, ends = header.step_starts_us, header.step_ends_us
    half = int(asked.spec.max_misalignment.total_seconds() * SECOND_US) // 2
    assert all(start < end <= start + half for start, end in zip(starts, ends, strict=True))
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    directory = plan_directory(workspace, header.plan_id)
    for number, total in enumerate(header.sources):
        splits = read_splits_of_steps(directory, range(header.steps), total.name)
        mine = [row for row in read if row.source == total.name]
        assert (total.splits, total.files) == (len(splits), len({split.path for split in splits}))
        in_parts = total.splits > total.files  # a part has at least one row in its step
        assert total.rows == sum(total.step_rows) or (
            in_parts and total.rows < sum(total.step_rows)
        )
        assert total.bytes == sum(total.step_bytes)
        in_steps = {split.step for split in splits}
        per_step = Counter(row.step for row in mine)
        assert all((rows > 0) == (step in in_steps) for step, rows in enumerate(total.step_rows))
        for step in range(0, header.steps, max(header.steps // 2, 1)):
            assert count_rows(directory, total.name, step) == per_step[step]
        whole = not asked.filters[number] and all(
            split.slice_start_us is None and not split.deletes and not split.duplicates
            for split in splits
        )
        if whole:
            assert total.rows == len(mine)
        for row in mine:
            assert total.lower_us is not None
            assert total.upper_us is not None
            assert total.lower_us <= _arrival_us(row, asked) <= total.upper_us + 1


REFUSALS = {
    "no statistics of column": lambda asked, rows: any(table.unknowable for table in asked.tables),
    "has no rows with": lambda asked, rows: not rows,
    "no rows of": lambda asked, rows: not rows,
    "without a Kafka partition or offset": lambda asked, rows: any(
        None in row.kafka for table in asked.tables for row in table.rows
    ),
    "out of order, but allowedLateness is": lambda asked, rows: (
        asked.policy is OrderingPolicy.STRICT
    ),
}
"""What planning may refuse, and when."""


def _run(seed: int, lake: Catalog, directory: Path) -> int:
    """Makes tables, plans Backfills of them, and checks what is read; how many rows that were."""
    rng = Random(seed)
    tables = [make_table(lake, f"t{seed}_{number}", rng) for number in range(rng.choice([1, 1, 2]))]
    checked = 0
    for number in range(5):
        asked = _ask(rng, tables)
        workspace = Workspace(str(directory / f"{seed}-{number}"))
        rows = [row for each in range(len(tables)) for row in asked.wanted(each)]
        try:
            header = make_plan(asked.spec, workspace, parallelism=rng.choice([1, 2, 4]))
        except InvalidPlanInput as error:
            for problem in error.problems:
                allowed = [
                    known(asked, rows)
                    for text, known in REFUSALS.items()
                    if text in str(problem.message)
                ]
                assert any(allowed), f"{problem} for {asked.spec}"
            continue
        verify_files(header, workspace)
        checked += _check(asked, header, workspace)
    return checked


@pytest.mark.parametrize("first", range(0, TABLES, 8))
@pytest.mark.usefixtures("format_v3")
def test_every_row_is_read_once_as_it_is_and_in_order(
    lake: Catalog, tmp_path: Path, first: int
) -> None:
    assert sum(_run(seed, lake, tmp_path) for seed in range(first, first + 8))


@pytest.mark.slow
@pytest.mark.usefixtures("format_v3")
@pytest.mark.parametrize("first", range(TABLES, TABLES_SLOW, 16))
def test_every_row_is_read_once_from_many_more_tables(
    lake: Catalog, tmp_path: Path, first: int
) -> None:
    assert sum(_run(seed, lake, tmp_path) for seed in range(first, first + 16))
