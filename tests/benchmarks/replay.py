"""The same work as in ``spark_reference.py``, read through a backfill plan: source and
micro-batches alone, no controller.

Usage: ``replay.py DIRECTORY pass-through|counts|sessions|join --steps 24``; prints one JSON line with
the job's seconds. The catalog ``bench`` must be in PyIceberg's configuration, as ``run.py`` sees
to.
"""

import argparse
import json
import shutil
import sys
import time
from datetime import timedelta
from pathlib import Path

import programs
from event_data import START_US
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from spark_reference import sessions_of
from spark_session import session_of_a_backfill

from backfill.api.quantities import from_us
from backfill.api.source import Source
from backfill.api.spec import ApplicationRef, BackfillSpec, Window
from backfill.planning.plan import plan_directory
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace
from backfill.runtime.queries.logical_plan import columns_used
from backfill.runtime.queries.progress_listener import committed_batch
from backfill.runtime.queries.run_state import Run
from backfill.runtime.queries.step_gate import StepGate
from backfill.runtime.queries.tracker import Tracker
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.source_frame import source_frame
from backfill.runtime.source.warm_up import warm_up
from backfill.runtime.switching.state_store import choose_state_store


def bench_spec(steps: int, hours: int = 24) -> BackfillSpec:
    """Both tables, the first hours, in so many steps of equal length."""
    length = timedelta(hours=hours)
    return BackfillSpec(
        application_ref=ApplicationRef(name="bench"),
        window=Window(start=from_us(START_US), end=from_us(START_US) + length),
        sources=tuple(
            Source(name=name, table=f"bench.events.{name}", timestamp_column="ingestion_ts")
            for name in ("impressions", "playbacks")
        ),
        max_misalignment=2 * length / steps,
    )


class Replay:
    """A plan over the generated tables of which everything is released."""

    def __init__(self, spark: SparkSession, directory: Path, steps: int, hours: int):
        self._spark = spark
        warm_up(spark)  # as a driver does when its application asks for the first source
        self._scratch = directory / f"replay-{steps}"
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        spec = bench_spec(steps, hours)
        self.header = make_plan(spec, Workspace(str(self._scratch)), parallelism=2)
        plan = plan_directory(Workspace(str(self._scratch)), self.header.plan_id)
        self._settings = RuntimeSettings(
            backfill="bench",
            uid="",
            namespace="default",
            attempt=1,
            plan_id=self.header.plan_id,
            plan=plan.uri,
            checkpoints=str(self._scratch / "checkpoints"),
            channel=str(self._scratch),
            window=spec.window,
            sources=spec.sources,
            outputs=(),
            main_file="",
        )
        names = [source.name for source in self.header.inputs.sources]
        tracker = Tracker(self.header, names, lambda _source, _step: 0, time.monotonic_ns)
        self._run = Run(self._settings, tracker)
        self._run.release_to_streams(self.header.steps)

    def frame(self, source: str) -> DataFrame:
        """A source."""
        return source_frame(self._spark, self._settings, source)

    def run(self, frames: dict[str, DataFrame]) -> dict[str, float]:
        """Runs queries into nothing until each has committed the flush."""
        started = time.monotonic()
        queries = [self._start(name, frame, len(frames)) for name, frame in frames.items()]
        while not all(
            query.lastProgress and query.lastProgress.batchId == self.header.steps
            for query in queries
        ):
            for query in queries:
                if query.exception() is not None:
                    raise query.exception()
            time.sleep(0.02)
        seconds = time.monotonic() - started
        batches = [batch for query in queries for batch in query.recentProgress]
        for query in queries:
            query.stop()
        return {
            "seconds": seconds,
            "rows": sum(
                sum(committed.rows.values())
                for each in batches
                if (committed := committed_batch(each))
            ),
            "steps": self.header.steps,
            "state_bytes": max(
                sum(each.memoryUsedBytes for each in batch.stateOperators) for batch in batches
            ),
        }

    def _start(self, name: str, frame: DataFrame, queries: int) -> StreamingQuery:
        checkpoint = self._scratch / "checkpoints" / name
        store = choose_state_store(frame, self.header, Workspace(str(checkpoint)), queries)
        print(name, "keeps its state in", store.reason, file=sys.stderr)
        gate = StepGate(self._run, frame.sparkSession, name, columns_used(frame))

        def write(rows: DataFrame, step: int) -> None:
            with gate.open(rows.sparkSession, step):
                rows.write.format("noop").mode("append").save()

        with store.in_session(self._spark), gate.announced(self._spark, 0):
            return (
                frame.writeStream.foreachBatch(write)
                .queryName(name)
                .option("checkpointLocation", str(checkpoint))
                .start()
            )


def pass_through(replay: Replay) -> dict[str, float]:
    """Both sources into nothing."""
    return replay.run({name: replay.frame(name) for name in ("impressions", "playbacks")})


def counts(replay: Replay) -> dict[str, float]:
    """Impressions per item and ten minutes."""
    events = replay.frame("impressions").withColumn("event_ts", F.col("event_ts").cast("timestamp"))
    windows = events.withWatermark("event_ts", "10 minutes").groupBy(
        F.window("event_ts", "10 minutes"), F.col("item_id") % 100
    )
    return replay.run({"counts": windows.count()})


def sessions(replay: Replay) -> dict[str, float]:
    """All sessions of the day."""
    events = replay.frame("impressions").withColumn("event_ts", F.col("event_ts").cast("timestamp"))
    return replay.run({"sessions": sessions_of(events.withWatermark("event_ts", "10 minutes"))})


def join(replay: Replay) -> dict[str, float]:
    """Plays with what was shown to the user up to half an hour before."""

    def read(source: str) -> DataFrame:
        events = replay.frame(source).withColumn("event_ts", F.col("event_ts").cast("timestamp"))
        return events.withWatermark("event_ts", "10 minutes")

    return replay.run({"join": programs.join(read)})


JOBS = {"pass-through": pass_through, "counts": counts, "sessions": sessions, "join": join}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--hours", type=int, default=24, help="how much of the day")
    parser.add_argument("--conf", action="append", default=[], help="key=value, a Spark property")
    arguments = parser.parse_args()
    spark = session_of_a_backfill(dict(each.split("=", 1) for each in arguments.conf))
    spark.range(1).count()
    replay = Replay(spark, arguments.directory, arguments.steps, arguments.hours)
    print(json.dumps(JOBS[arguments.job](replay)))
    spark.stop()


if __name__ == "__main__":
    main()
