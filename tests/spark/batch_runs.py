"""Queries run by spans in the tests' own session, into a real table."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from planned_sources import Backfill, planned
from pyiceberg.catalog import Catalog
from pyiceberg.transforms import HourTransform
from pyspark.sql import DataFrame

from backfill.api.output import Output
from backfill.api.spec import BackfillSpec
from backfill.runtime.batch.look_back import analyze
from backfill.runtime.batch.prepare_query import SpanOutput, prepare_spans
from backfill.runtime.batch.span_runner import SpanRunner
from backfill.runtime.batch.time_reach import Bounded
from backfill.runtime.queries.logical_plan import columns_used
from backfill.runtime.queries.run_state import FINISHED, Run
from backfill.runtime.queries.tracker import Tracker
from backfill.runtime.sink import SinkWriter, sink_settings
from histories import HOUR_US, MINUTE_US, UTC_TIME, times
from waiting import eventually


@dataclass
class BatchRun:
    """One attempt to run a query by spans."""

    backfill: Backfill
    run: Run = field(init=False)

    def __post_init__(self) -> None:
        header = self.backfill.header
        sources = [source.name for source in header.inputs.sources]
        tracker = Tracker(header, sources, lambda _source, _step: 0, lambda: 0)
        self.run = Run(self.backfill.settings, tracker)

    def prepared(
        self, frame: DataFrame, table: str, column: str | None, *, complete: bool = False
    ) -> SpanRunner:
        """The query of a frame that writes into ``lake.raw.<table>``, whose time is ``column``. It
        may be null in all rows, as programs that are made at random have it.
        """
        output = Output.model_validate(
            {
                "name": "results",
                "table": f"lake.raw.{table}",
                "timestampColumn": column,
                "publish": {"allowNull": [column] if column else []},
            }
        )
        sink = sink_settings(frame, self.backfill.settings, output, "results")
        header = self.backfill.header
        found = analyze(frame, column, header.inputs.arrival_columns)
        assert isinstance(found, Bounded), found
        writer = SinkWriter(sink)
        target = SpanOutput("results", output, 0, sink, writer, writer.part())
        used = columns_used(frame)
        return prepare_spans(self.run, frame, target, header, found, used=used, complete=complete)

    def finish(self, runner: SpanRunner) -> Exception | None:
        """Runs all spans; what failed, if something did."""
        self.run.release(self.backfill.header.steps)
        runner.start()
        eventually(
            lambda: not any(thread.is_alive() for thread in runner.threads),
            lambda: str(self.run.tracker.queries),
        )
        self.run.end(FINISHED)
        return runner.exception()


def staged(lake: Catalog, table: str) -> pa.Table:
    """What is in the branch of a table."""
    loaded = lake.load_table(f"raw.{table}")
    (branch,) = (ref for name, ref in loaded.refs().items() if name != "main")
    return loaded.scan(snapshot_id=branch.snapshot_id).to_arrow()


START = datetime(2024, 3, 1, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000
HOURS = 30
_tables = count()
DELAY_US = 30 * MINUTE_US
COLUMNS = {"at": UTC_TIME, "k": pa.int64(), "rows": pa.int64(), "ids": pa.int64()}


@dataclass
class Events:
    """Thirty-two hours of events, thirty of them in the window, in files of an hour by arrival."""

    lake: Catalog
    directory: Path
    count: int = 3_000
    name: str = "events"

    number: int = field(default_factory=lambda: next(_tables))
    """Part of the names of tables: the catalog has those of other tests as well, and Spark's Python
    workers keep the tables that they have opened, by name.
    """

    def __post_init__(self) -> None:
        random = np.random.default_rng(7)
        self.happened = START_US + 1_000 * random.integers(
            0, (HOURS + 2) * HOUR_US // 1_000, self.count
        )
        self.arrived = self.happened + random.integers(0, 10 * MINUTE_US, self.count)
        self.ids = np.arange(self.count)
        self.without_key = np.arange(0)  # their IDs

    def some(self, each: int) -> np.ndarray:
        """Every so many rows, those near the end of the window excepted: what arrives long after it
        is not read.
        """
        read = self.happened < START_US + (HOURS - 6) * HOUR_US
        return (np.arange(self.count) % each == 0) & read

    @property
    def table(self) -> str:
        return f"raw.{self.name}_{self.number}"

    @property
    def results(self) -> str:
        """The table of the results, without its namespace."""
        return f"results_{self.number}"

    @property
    def rows(self) -> pa.Table:
        return pa.table(
            {
                "id": self.ids,
                "k": pa.array(self.ids % 3, mask=np.isin(self.ids, self.without_key)),
                "t": times(self.happened),
                "said": pa.array([f"{each // 1000 / 1000:.3f}" for each in self.happened.tolist()]),
                "at": times(self.arrived),
            }
        )

    def planned(
        self, misalignment: str = "6h", *others: "Events", drain: str = "2h", **ordering: str
    ) -> Backfill:
        """With the events of ``others``, which are other sources."""
        every = (self, *others)
        for each in every:
            each._write()
        self.lake.create_table(f"raw.{self.results}", pa.schema(COLUMNS))
        spec: dict[str, Any] = {
            "applicationRef": {"name": "app"},
            "window": {"start": START, "end": START + timedelta(hours=HOURS), "drain": drain},
            "sources": [
                {"name": each.name, "table": f"lake.{each.table}", "timestampColumn": "at"}
                for each in every
            ],
            "maxMisalignment": misalignment,
            "planning": {"targetStepBytes": "16Ki"},
            "ordering": ordering,
        }
        return planned(BackfillSpec.model_validate(spec), self.directory)

    def _write(self) -> None:
        rows = self.rows
        table = self.lake.create_table(self.table, rows.schema)
        with table.update_spec() as update:
            update.add_field("at", HourTransform())
        table.append(rows)
