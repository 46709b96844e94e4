"""Programs made at random give the same rows by spans, as a stream, and in DuckDB of all rows at
once.

``BACKFILL_PROGRAM_EXAMPLES`` is how many programs the slow test tries, and
``BACKFILL_PROGRAM_SEED`` begins others.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from batch_runs import BatchRun, staged
from captured_streams import streams
from event_time_programs import DELAY_MINUTES, SCHEMA, SOURCES, Program, Step, parts, programs, run
from event_time_sql import sql
from hypothesis import HealthCheck, Phase, assume, event, given, seed, settings
from hypothesis import strategies as st
from planned_sources import Backfill, committed, planned, wait
from pyiceberg.catalog import Catalog
from pyiceberg.transforms import HourTransform
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from backfill.api.spec import BackfillSpec
from backfill.runtime.batch import spans
from backfill.runtime.batch.look_back import analyze
from backfill.runtime.batch.time_reach import Bounded
from backfill.runtime.source.source_frame import source_frame
from backfill.runtime.spark_versions import to_arrow
from histories import MINUTE_US, UTC_TIME, times

START = datetime(2024, 3, 1, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000
MARGIN, HOURS = 3, 8
"""Hours that are read before and after the window, and hours of the window."""
COUNT = 200
ARRIVAL = dict.fromkeys(SOURCES, "arrived")
EXAMPLES = int(os.environ.get("BACKFILL_PROGRAM_EXAMPLES", "20"))
SEED = int(os.environ.get("BACKFILL_PROGRAM_SEED", "0"))
Rows = Counter[tuple[int | None, ...]]
"""k, t, u and x, times in microseconds."""
_numbers = count()


@dataclass
class History:
    """Rows of both sources that arrive late, twice, at the same moments, and without a value."""

    lake: Catalog
    directory: Path
    seed: int

    def __post_init__(self) -> None:
        self.number = next(_numbers)
        random = np.random.default_rng(self.seed)
        self.rows = {name: self._rows(random) for name in SOURCES}

    def _rows(self, random: np.random.Generator) -> dict[str, np.ndarray]:
        minutes = random.integers(0, (HOURS + 2 * MARGIN) * 60, COUNT)
        beside = random.choice([0, 0, 0, -1_000, 1_000], COUNT)  # a watermark has milliseconds
        t = START_US - MARGIN * 60 * MINUTE_US + minutes * MINUTE_US + beside
        lag = random.choice([0, 0, 1, 5, DELAY_MINUTES], COUNT) * MINUTE_US
        u = t + random.choice([-10, -5, 0, 5, 10], COUNT) * MINUTE_US
        rows = {
            "k": random.integers(0, 3, COUNT),
            "t": t,
            "u": np.where(random.integers(0, 3, COUNT) > 0, u, 0),
            "x": random.integers(0, 10, COUNT),
            "arrived": t + lag,
        }
        again = np.concatenate([np.arange(COUNT), random.integers(0, COUNT, COUNT // 10)])
        return {name: values[again] for name, values in rows.items()}

    @property
    def results(self) -> str:
        return f"program_results_{self.number}"

    def planned(self) -> Backfill:
        for name in SOURCES:
            rows = self.rows[name]
            table = pa.table(
                {
                    "k": pa.array(rows["k"], pa.int32()),
                    "t": times(rows["t"]),
                    "u": pa.array(rows["u"], UTC_TIME, mask=rows["u"] == 0),
                    "x": rows["x"],
                    "arrived": times(rows["arrived"]),
                }
            )
            created = self.lake.create_table(f"raw.program_{name}_{self.number}", table.schema)
            with created.update_spec() as update:
                update.add_field("arrived", HourTransform())
            created.append(table)
        given = pa.schema(
            {"k": pa.int32(), "t": UTC_TIME, "u": UTC_TIME, "x": pa.int64()},
        )
        self.lake.create_table(f"raw.{self.results}", given)
        spec = {
            "applicationRef": {"name": "app"},
            "window": {
                "start": START,
                "end": START + timedelta(hours=HOURS),
                "warmUp": f"{MARGIN}h",
                "drain": f"{MARGIN}h",
            },
            "sources": [
                {
                    "name": name,
                    "table": f"lake.raw.program_{name}_{self.number}",
                    "timestampColumn": "arrived",
                }
                for name in SOURCES
            ],
            "maxMisalignment": "6h",
            "planning": {"targetStepBytes": "6Ki"},
        }
        directory = self.directory / str(self.number)
        directory.mkdir()
        return planned(BackfillSpec.model_validate(spec), directory)

    def by_duckdb(self, program: Program, read_us: tuple[int, int]) -> Rows:
        with duckdb.connect() as connection:
            for name in SOURCES:
                columns = dict(self.rows[name])
                u = columns.pop("u")
                rows = pa.table({**columns, "u": pa.array(u, mask=u == 0)})
                arrived = pc.field("arrived")
                read = rows.filter((arrived >= read_us[0]) & (arrived < read_us[1]))
                connection.register(f"source_{name}", read)
            return in_window(connection.execute(sql(program)).fetchall())


def in_window(rows: list[tuple[int | None, ...]]) -> Rows:
    """Those that are dated in the window."""
    end_us = START_US + HOURS * 60 * MINUTE_US
    return Counter(row for row in rows if row[1] is not None and START_US <= row[1] < end_us)


def of_table(table: pa.Table) -> Rows:
    columns = [
        table[name].cast(UTC_TIME if name in {"t", "u"} else pa.int64()).cast(pa.int64())
        for name in ("k", "t", "u", "x")
    ]
    return in_window(list(zip(*(column.to_pylist() for column in columns), strict=True)))


def by_stream(spark: SparkSession, backfill: Backfill, frame: DataFrame) -> Rows | None:
    """What Spark's own streaming gives; None for what it cannot run."""
    try:
        query = backfill.start(frame)
    except AnalysisException:
        return None
    steps = backfill.header.steps
    backfill.release(steps)
    try:
        wait(lambda: committed(query) > steps, query)
    except AssertionError:
        # a join's condition that is never true loses its equality only when the batch is planned
        if "Stream-stream join without equality" not in str(query.exception()):
            raise
        backfill.stop()
        return None
    backfill.stop()
    return of_table(to_arrow(backfill.results(spark)))


@pytest.fixture
def short_spans(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Spans as short as they can be, which a longer look-back would not be worth."""
    monkeypatch.setattr(spans, "_LEAST_TIMES_OVERLAP", 1)
    monkeypatch.setattr(spans, "_FULL_STEPS", 2)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def check(spark: SparkSession, lake: Catalog, directory: Path, program: Program, data: int) -> None:
    captured = streams(spark, dict.fromkeys(SOURCES, SCHEMA))
    found = analyze(run(program, captured), "t", ARRIVAL)
    assume(isinstance(found, Bounded) and not found.stateless)
    history = History(lake, directory, data)
    backfill = history.planned()
    inputs = backfill.header.inputs
    frame = run(program, lambda name: source_frame(spark, backfill.settings, name))
    expected = history.by_duckdb(program, (inputs.read_start_us, inputs.read_end_us))

    batch = BatchRun(backfill)
    runner = batch.prepared(frame, history.results, "t")
    assert batch.finish(runner) is None
    given = of_table(staged(lake, history.results))
    (query,) = batch.run.tracker.queries
    told = f"{program}, rows {data}, {len(runner._spans)} spans of {backfill.header.steps} steps"
    event(f"{len(runner._spans)} spans")
    assert not given - expected, told
    assert not expected - given or query.open_at_end, told
    assert query.arrived_late == 0, told

    # of recurring keys a stream keeps more, by how its micro-batches were cut
    by_batches = any(
        isinstance(each, Step) and each.what == "within_watermark" for each in parts(program)
    )
    streamed = None if by_batches else by_stream(spark, backfill, frame)
    event("not streamed" if streamed is None else "streamed")
    if streamed is not None:
        assert not streamed - expected, told
        assert not given - streamed, told
        assert not streamed - given or query.open_at_end, told


def few(examples: int) -> settings:
    """What is wrong is told as it is: each try takes seconds."""
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )


PROGRAMS = st.one_of(programs(1), programs(2))
HISTORIES = st.integers(0, 2**32 - 1)


@pytest.mark.usefixtures("short_spans")
@few(3)
@given(program=PROGRAMS, data=HISTORIES)
def test_a_few_programs_give_the_same_rows_every_way(
    program: Program, data: int, spark: SparkSession, lake_of_workers: Catalog, tmp_path: Path
) -> None:
    check(spark, lake_of_workers, tmp_path, program, data)


@pytest.mark.slow
@pytest.mark.timeout(60 + 60 * EXAMPLES)
@pytest.mark.usefixtures("short_spans")
@seed(SEED)
@few(EXAMPLES)
@given(program=PROGRAMS, data=HISTORIES)
def test_programs_give_the_same_rows_every_way(
    program: Program, data: int, spark: SparkSession, lake_of_workers: Catalog, tmp_path: Path
) -> None:
    check(spark, lake_of_workers, tmp_path, program, data)
