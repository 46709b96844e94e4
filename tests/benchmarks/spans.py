"""A query of ``programs.py`` as a Backfill with ``execution: Batch`` runs it, or as a hand-written
batch job: from the first row read to the last one in an Iceberg branch or in Parquet files.

Usage: ``spans.py DIRECTORY PROGRAM backfill|kafka|by-hand``; prints one JSON line with the job's
seconds. ``kafka`` is a Backfill of a program that parses JSON from Kafka. With ``--cores`` it is
planned for so many cores; it runs on two. The catalog ``bench`` must be in PyIceberg's
configuration, as ``run.py`` sees to.
"""

import argparse
import json
import shutil
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from event_data import days_in
from programs import PROGRAMS
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from replay import bench_spec
from spark_reference import COLUMNS
from spark_session import bench_session, session_of_a_backfill

from backfill.api.output import Output
from backfill.api.source import Live, LiveKafka
from backfill.outputs.staging import StagedBatch
from backfill.planning.plan import plan_directory
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace
from backfill.runtime.batch.look_back import analyze
from backfill.runtime.batch.prepare_query import SpanOutput, prepare_spans
from backfill.runtime.batch.span_runner import Computed, SpanRunner
from backfill.runtime.batch.spans import Span
from backfill.runtime.batch.time_reach import Unbounded
from backfill.runtime.queries.logical_plan import columns_used
from backfill.runtime.queries.run_state import Run
from backfill.runtime.queries.tracker import Tracker
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.sink import SinkWriter, sink_settings
from backfill.runtime.source.source_frame import source_frame
from backfill.runtime.source.warm_up import warm_up
from backfill.runtime.switching.kafka_rows import kafka_frame

STEPS = 96


def by_hand(spark: SparkSession, directory: Path, program: str) -> dict[str, Any]:
    """One batch job that writes Parquet."""
    target = directory / "by-hand"
    shutil.rmtree(target, ignore_errors=True)

    def read(name: str) -> DataFrame:
        frame = spark.read.schema(COLUMNS).parquet(str(directory / "plain" / name))
        return frame.withColumn("event_ts", F.col("event_ts").cast("timestamp"))

    started = time.monotonic()
    PROGRAMS[program](read).write.option("compression", "zstd").parquet(str(target))
    seconds = time.monotonic() - started
    return {"seconds": seconds, "rows": spark.read.parquet(str(target)).count()}


def backfill(
    spark: SparkSession, directory: Path, program: str, *, cores: int, kafka: bool = False
) -> dict[str, Any]:
    """Spans into the branch of an Iceberg table."""
    warm_up(spark)  # as a driver does when its application asks for the first source
    scratch = directory / "spans"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    days = days_in(directory)
    spec = bench_spec(STEPS * days, 24 * days)
    sources = tuple(
        each.model_copy(update={"live": Live(kafka=LiveKafka(topic=each.name))})
        for each in spec.sources
    )
    header = make_plan(spec, Workspace(str(scratch)), parallelism=cores)
    output = Output(name=program, table=f"bench.results.{program}", timestamp_column="event_ts")
    settings = RuntimeSettings(
        backfill="bench",
        uid="",
        namespace="default",
        attempt=1,
        plan_id=header.plan_id,
        plan=plan_directory(Workspace(str(scratch)), header.plan_id).uri,
        checkpoints=str(scratch / "checkpoints"),
        channel=str(scratch),
        window=spec.window,
        sources=sources,
        outputs=(output,),
        execution="Batch",
        main_file="",
    )

    def parsed(name: str) -> DataFrame:
        text = F.col("value").cast("string")
        records = kafka_frame(spark, settings, name)
        return records.select(F.from_json(text, COLUMNS).alias("event")).select("event.*")

    def read(name: str) -> DataFrame:
        frame = parsed(name) if kafka else source_frame(spark, settings, name)
        if program == "pass-through":
            return frame
        return frame.withColumn("event_ts", F.col("event_ts").cast("timestamp")).withWatermark(
            "event_ts", "10 minutes"
        )

    frame = PROGRAMS[program](read)
    catalog = load_catalog("bench")
    catalog.create_namespace_if_not_exists("results")
    with suppress(NoSuchTableError):
        catalog.drop_table(f"results.{program}")
    catalog.create_table(f"results.{program}", schema=to_arrow_schema(frame.schema, timezone="UTC"))
    used = columns_used(frame)
    run = Run(
        settings,
        Tracker(
            header,
            sources=sorted(used),
            count_rows=lambda source, step: 0,
            clock_us=lambda: time.time_ns() // 1_000,
        ),
    )
    run.release(header.steps)
    started = time.monotonic()
    sink = sink_settings(frame, settings, output, program)
    writer = SinkWriter(sink)
    target = SpanOutput(program, output, 0, sink, writer, writer.part())
    found = analyze(frame, output.timestamp_column, header.inputs.arrival_columns)
    if isinstance(found, Unbounded):
        raise SystemExit(found.reason)
    runner = prepare_spans(run, frame, target, header, found, used=used)
    timings = _timed(runner, program, header.steps)
    runner.start()
    for thread in runner.threads:
        thread.join()
    if (error := runner.exception()) is not None:
        raise error
    seconds = time.monotonic() - started
    staged = load_catalog("bench").load_table(f"results.{program}")
    rows = sum(
        task.file.record_count
        for name in staged.refs()
        for task in staged.scan(snapshot_id=staged.refs()[name].snapshot_id).plan_files()
    )
    return {"seconds": seconds, "rows": rows, "spans": len(timings), "timings": timings}


def _timed(runner: SpanRunner, program: str, steps: int) -> list[dict[str, Any]]:
    """What the driver will have taken for each span, in the order they are committed."""
    work, computed, timings = runner._work, {}, []
    write, commit = work.write, work.commit

    def timed_write(span: Span) -> Computed | None:
        begun = time.time()
        found = write(span)
        computed[span.steps[-1]] = {
            "description": f"{program}: steps {span.steps.start + 1} to {span.steps.stop} of {steps}",
            "begun": begun,
            "computed": time.time(),
        }
        return found

    def timed_commit(batch: StagedBatch) -> None:
        begun = time.time()
        commit(batch)
        timings.append({**computed[batch.batch_id], "commit": time.time() - begun})

    work.write, work.commit = timed_write, timed_commit  # type: ignore[method-assign]
    return timings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("side", choices=["backfill", "kafka", "by-hand"])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--partitions", type=int, help="of shuffles; otherwise one for each core")
    parser.add_argument("--heap", default="6g", help="the most that Java may take for its heap")
    parser.add_argument("--event-log", type=Path)
    arguments = parser.parse_args()
    changes = {
        "spark.sql.shuffle.partitions": str(arguments.partitions or arguments.cores),
        "spark.driver.memory": arguments.heap,
    }
    if arguments.event_log is not None:
        changes |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": arguments.event_log.as_uri(),
            "spark.eventLog.compress": "false",
        }
    by_hand_job = arguments.side == "by-hand"
    spark = (bench_session if by_hand_job else session_of_a_backfill)(changes)
    spark.range(1).count()  # the first job pays for starting up, on both sides
    side = {
        "backfill": partial(backfill, cores=arguments.cores),
        "kafka": partial(backfill, cores=arguments.cores, kafka=True),
        "by-hand": by_hand,
    }[arguments.side]
    print(json.dumps(side(spark, arguments.directory, arguments.program)))
    spark.stop()


if __name__ == "__main__":
    main()
