"""A plan that is at hand in the tests' own session, and queries on it."""

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from backfill.api.spec import BackfillSpec
from backfill.planning.plan import PlanHeader, plan_directory
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace
from backfill.runtime.queries.earlier_attempts import committed_steps
from backfill.runtime.queries.logical_plan import columns_used
from backfill.runtime.queries.run_state import Run
from backfill.runtime.queries.step_gate import StepGate
from backfill.runtime.queries.tracker import Tracker
from backfill.runtime.settings import RuntimeSettings
from waiting import eventually


@dataclass
class Backfill:
    """A plan, what is released of it, and queries that read it."""

    settings: RuntimeSettings
    header: PlanHeader
    queries: list[StreamingQuery] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = [source.name for source in self.header.inputs.sources]
        tracker = Tracker(self.header, names, lambda _source, _step: 0, time.monotonic_ns)
        self.run = Run(self.settings, tracker)

    def release(self, steps: int) -> None:
        self.run.release_to_streams(steps)

    def start(
        self,
        frame: DataFrame,
        name: str = "q",
        *,
        sink: Callable[[DataFrame, int], None] | None = None,
        used: Mapping[str, Set[str]] | None = None,
    ) -> StreamingQuery:
        """Starts a query.

        Args:
            sink: what is done with each micro-batch; otherwise it is written into a directory of
                its own, which replaces an earlier one.
            used: by source, the columns that are read; otherwise those that matter.
        """
        checkpoint = f"{self.settings.checkpoints}/{name}"
        used = columns_used(frame) if used is None else used
        gate = StepGate(self.run, frame.sparkSession, name, used)

        def write(rows: DataFrame, batch: int) -> None:
            rows.write.mode("overwrite").parquet(f"{checkpoint}-result/batch={batch}")

        def gated(rows: DataFrame, batch: int) -> None:
            with gate.open(rows.sparkSession, batch):
                (sink or write)(rows, batch)

        writer = frame.writeStream.queryName(name).option("checkpointLocation", checkpoint)
        with gate.announced(frame.sparkSession, committed_steps(Workspace(checkpoint))):
            query = writer.foreachBatch(gated).start()
        self.queries.append(query)
        return query

    def stop(self) -> None:
        """Ends all queries."""
        for query in self.queries:
            query.stop()

    def results(self, spark: SparkSession, name: str = "q") -> DataFrame:
        return spark.read.parquet(f"{self.settings.checkpoints}/{name}-result").drop("batch")


def wait(until: Callable[[], bool], query: StreamingQuery) -> None:
    """Until it holds, or the query fails."""

    def look() -> bool:
        assert query.exception() is None, query.exception()
        return until()

    eventually(look, lambda: str(query.lastProgress))


def committed(query: StreamingQuery) -> int:
    """The number of batches that are committed."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"]) + 1


def planned(spec: BackfillSpec, directory: Path) -> Backfill:
    header = make_plan(spec, Workspace(str(directory / "work")), parallelism=2)
    settings = RuntimeSettings(
        backfill="test",
        uid="",
        namespace="default",
        attempt=1,
        plan_id=header.plan_id,
        plan=plan_directory(Workspace(str(directory / "work")), header.plan_id).uri,
        checkpoints=str(directory / "checkpoints"),
        channel=str(directory / "channel"),
        window=spec.window,
        sources=spec.sources,
        outputs=(),
        main_file="app.py",
    )
    return Backfill(settings, header)
