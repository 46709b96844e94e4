"""A plan that is at hand in the tests' own session, and queries on it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from backfill.api.spec import BackfillSpec
from backfill.planning.plan import PlanHeader, plan_directory
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.release_file import Release, release_path, write_release
from waiting import eventually


@dataclass
class Backfill:
    """A plan, what is released of it, and queries that read it."""

    settings: RuntimeSettings
    header: PlanHeader
    queries: list[StreamingQuery] = field(default_factory=list)

    def release(self, steps: int, stop: bool = False) -> None:
        write_release(release_path(self.settings.scratch), Release(steps, stop))

    def start(self, frame: DataFrame, name: str = "q") -> StreamingQuery:
        checkpoint, result = (
            f"{self.settings.checkpoints}/{name}{kind}" for kind in ("", "-result")
        )
        query = (
            frame.writeStream.queryName(name)
            .format("parquet")
            .option("checkpointLocation", checkpoint)
            .start(result)
        )
        self.queries.append(query)
        return query

    def stop(self) -> None:
        """Ends all queries when they have read what is released."""
        self.release(self.header.steps, stop=True)
        for query in self.queries:
            query.stop()

    def results(self, spark: SparkSession, name: str = "q") -> DataFrame:
        return spark.read.parquet(f"{self.settings.checkpoints}/{name}-result")


def wait(until: Callable[[], bool], query: StreamingQuery) -> None:
    """Until it holds, or the query fails."""

    def look() -> bool:
        assert query.exception() is None, query.exception()
        return until()

    eventually(look, lambda: str(query.lastProgress))


def committed(query: StreamingQuery) -> int:
    """The number of batches that are committed."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress.batchId) + 1


def planned(spec: BackfillSpec, directory: Path) -> Backfill:
    header = make_plan(spec, Workspace(str(directory / "work")), parallelism=2)
    (directory / "scratch").mkdir()
    settings = RuntimeSettings(
        backfill="test",
        uid="",
        namespace="default",
        attempt=1,
        plan_id=header.plan_id,
        plan=plan_directory(Workspace(str(directory / "work")), header.plan_id).uri,
        checkpoints=str(directory / "checkpoints"),
        channel=str(directory / "channel"),
        scratch=str(directory / "scratch"),
        window=spec.window,
        sources=spec.sources,
        outputs=(),
        main_file="app.py",
    )
    return Backfill(settings, header)
