"""A program that writes several outputs with ``foreachBatch``: whatever ends its driver, each output
has every batch once.
"""

import signal
from pathlib import Path

import duckdb
import pytest
from drivers import (
    DEADLINE_SECONDS,
    ROWS_PER_STEP,
    Lake,
    assign,
    committed,
    driver,
    status,
    wait_until,
)
from pyiceberg.catalog import Catalog

STEPS = 6
KILLED_IN = 2
"""Batch in which the first attempt is killed after the commit of its first output."""
APPLICATION = f"""
import os, signal
from pathlib import Path
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
records = spark.readStream.format("kafka").option("subscribe", "raw-events").load()
events = records.select(F.from_json(F.col("value").cast("string"), "id long, user long, at timestamp").alias("e")).select("e.*")

def write_both(batch, number):
    batch.persist()
    print("batch", number, flush=True)
    batch.where("user = 0").write.format("iceberg").mode("append").save("lake.default.copies")
    if batch.count() > 0 and number != 1:
        counts = batch.groupBy(F.window("at", "10 minutes").start.alias("start"), "user").agg(F.count("*").alias("n"))
        counts.writeTo("default.counts").using("iceberg").append()
    batch.where("user = 1").write.mode("append").saveAsTable("default.copies")
    batch.unpersist()

from backfill.runtime.switching import batch_function
commit = batch_function._Branch.commit

def commit_then_die(self, number, *args, **kwargs):
    commit(self, number, *args, **kwargs)
    mark = Path("killed")
    if number == {KILLED_IN} and not mark.exists():
        mark.write_text(self.output.name)
        os.kill(os.getpid(), signal.SIGKILL)

batch_function._Branch.commit = commit_then_die
events.writeStream.foreachBatch(write_both).option("checkpointLocation", "/production/x").start().awaitTermination()
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_between_the_commits_of_two_outputs_leaves_each_batch_once_in_both(
    tmp_path: Path, lake: Catalog
) -> None:
    history = Lake(tmp_path, lake, STEPS)
    program = tmp_path / "app.py"
    program.write_text(APPLICATION)
    outputs = ("copies", "counts", "spare")
    lake.create_table("default.spare", schema=lake.load_table("default.copies").schema())

    first = history.settings("both", program, 1, outputs)
    assign(first, history.header, STEPS)
    with driver(first) as process:
        assert process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    assert (tmp_path / "both" / "killed").read_text() == "copies"

    second = history.settings("both", program, 2, outputs)
    assign(second, history.header, 4)
    with driver(second) as process:
        wait_until(lambda: committed(second) >= 4, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0
    assert status(second).phase == "Stopped"

    third = history.settings("both", program, 3, outputs)
    assign(third, history.header, STEPS)
    with driver(third) as process:
        assert process.wait(DEADLINE_SECONDS) == 0
    end = status(third)
    assert end.phase == "Finished"
    assert [(query.name, query.output, query.open_at_end) for query in end.queries] == [
        ("write_both-x", output, 0) for output in outputs
    ]
    assert {query.sources[0].rows for query in end.queries} == {STEPS * ROWS_PER_STEP}
    log = (tmp_path / "both" / "driver.log").read_text()
    assert [log.count(f"batch {number}\n") for number in range(STEPS + 1)] == [
        2 if number == KILLED_IN else 1 for number in range(STEPS + 1)
    ], "also the flush is a batch"

    _compare(
        lake,
        "both",
        {
            "copies": "select * from events where user < 2",
            "counts": 'select time_bucket(interval 10 minutes, "at") as start, user, count(*) as n'
            " from events where id // 60 != 1 group by all",
            "spare": "select * from events where false",
        },
    )


IN_ANY_ORDER = f"""
import os, signal
from pathlib import Path
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
records = spark.readStream.format("kafka").option("subscribe", "raw-events").load()
events = records.select(F.from_json(F.col("value").cast("string"), "id long, user long, at timestamp").alias("e")).select("e.*")
mark = Path("killed")

from backfill.runtime.switching import batch_function
commit = batch_function._Branch.commit

def commit_then_die(self, number, *args, **kwargs):
    commit(self, number, *args, **kwargs)
    if number == {KILLED_IN} and self.output.name == "copies" and not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)

batch_function._Branch.commit = commit_then_die

def to_database(batch, number, table):
    if number != 1:
        batch.write.jdbc("jdbc:postgresql://db/x", table, "append", {{"password": "x"}})

def latest(batch, number):
    if not batch.isEmpty():
        batch.write.mode("overwrite").jdbc("jdbc:postgresql://db/x", "counts")

kept = [events.where(f"user = {{user}}") for user in range(2)]
sums = events.groupBy(F.lit("2021-07-11").cast("timestamp").alias("start"), "user").agg(F.count("*").alias("n"))
queries = [
    kept[0].writeStream.foreachBatch(lambda batch, n: to_database(batch, n, "public.copies")).option("checkpointLocation", "/ck/one"),
    kept[1].writeStream.foreachBatch(lambda batch, n: to_database(batch, n, "public.copies")).option("checkpointLocation", "/ck/two/checkpoint"),
    sums.writeStream.outputMode("complete").foreachBatch(latest).option("checkpointLocation", "/ck/sums"),
]
for query in reversed(queries) if mark.exists() else queries:
    query.start()
spark.streams.awaitAnyTermination()
"""


def test_functions_without_names_that_write_one_table_keep_their_rows_and_places_in_every_attempt(
    tmp_path: Path, lake: Catalog
) -> None:
    """Two of them append to one table, and another one overwrites a table with the whole result."""
    history = Lake(tmp_path, lake, STEPS)
    program = tmp_path / "app.py"
    program.write_text(IN_ANY_ORDER)
    outputs = ("copies", "counts")
    first = history.settings("order", program, 1, outputs)
    assign(first, history.header, STEPS)
    with driver(first) as process:
        assert process.wait(DEADLINE_SECONDS) == -signal.SIGKILL

    second = history.settings("order", program, 2, outputs)
    assign(second, history.header, STEPS)
    with driver(second) as process:
        assert process.wait(DEADLINE_SECONDS) == 0
    end = status(second)
    assert end.phase == "Finished", end.message
    assert {(query.name, query.output) for query in end.queries} == {
        ("foreachBatch-one", "copies"),
        ("foreachBatch-two", "copies"),
        ("latest-sums", "counts"),
    }
    _compare(
        lake,
        "order",
        {
            "copies": "select * from events where user < 2 and id // 60 != 1",
            "counts": "select timestamptz '2021-07-11 00:00:00+00' as start, user, count(*) as n"
            " from events group by user",
        },
    )


SHARING = """
import json, os, signal, time
from pathlib import Path
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
records = spark.readStream.format("kafka").option("subscribe", "raw-events").load()
events = records.select(F.from_json(F.col("value").cast("string"), "id long, user long, at timestamp").alias("e")).select("e.*")
mark = Path("killed")

from backfill.runtime.switching import batch_function
commit = batch_function._Branch.commit

def writers():
    branch = batch_function.Catalogs().load_table("lake.default.copies", "outputs").snapshot_by_name("backfill/shared")
    return json.loads(branch.summary["backfill.staged"])["copies"]["parts"]

def commit_then_die(self, number, *args, **kwargs):
    commit(self, number, *args, **kwargs)
    if number == 2 and not mark.exists():
        while len(writers()) < 3:
            time.sleep(0.1)
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)

batch_function._Branch.commit = commit_then_die

def add(batch, number):
    batch.writeTo("lake.default.copies").append()

rows, of_all = events.where("user = 0"), events.where("user = 1").dropDuplicates(["id"])
queries = [
    lambda: rows.writeStream.format("iceberg").option("checkpointLocation", "/ck/first").toTable("default.copies"),
    lambda: of_all.writeStream.queryName("once").option("path", "lake.default.copies").start(),
    lambda: events.where("user = 2").writeStream.foreachBatch(add).start(),
]
for start in reversed(queries) if mark.exists() else queries:
    start()
spark.streams.awaitAnyTermination()
"""


def test_queries_that_append_to_one_table_have_their_rows_once_whatever_ends_the_driver(
    tmp_path: Path, lake: Catalog
) -> None:
    """One is run by batch jobs, one is a stream, and one has a function."""
    history = Lake(tmp_path, lake, STEPS)
    program = tmp_path / "app.py"
    program.write_text(SHARING)
    first, second = (
        history.settings("shared", program, attempt, ("copies",)).model_copy(
            update={"execution": "Auto"}
        )
        for attempt in (1, 2)
    )
    assign(first, history.header, STEPS)
    with driver(first) as process:
        assert process.wait(DEADLINE_SECONDS) == -signal.SIGKILL

    assign(second, history.header, STEPS)
    with driver(second) as process:
        assert process.wait(DEADLINE_SECONDS) == 0
    end = status(second)
    assert end.phase == "Finished", end.message
    assert {(query.name, query.output, query.execution) for query in end.queries} == {
        ("copies-first", "copies", "Batch"),
        ("once", "copies", "Streaming"),
        ("add", "copies", "Streaming"),
    }
    _compare(lake, "shared", {"copies": "select * from events"})


MERGING = """
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
records = spark.readStream.format("kafka").option("subscribe", "raw-events").load()
events = records.select(F.from_json(F.col("value").cast("string"), "id long, user long, at timestamp").alias("e")).select("e.*")
counts = events.withWatermark("at", "1 minute").groupBy(F.window("at", "1 hour"), "user").agg(F.count("*").alias("n"))

def merge(batch, number):
    batch = batch.select("window.start", "user", "n")
    if number % 2:
        batch.createOrReplaceTempView("updates")
        batch.sparkSession.sql(
            "MERGE INTO default.counts t USING updates s ON t.start = s.start AND t.user = s.user"
            " WHEN MATCHED THEN UPDATE SET t.n = 2 * s.n - s.n"
            " WHEN NOT MATCHED THEN INSERT (n, start, user) VALUES (2 * s.n - s.n, s.start, user)"
        )
    else:
        same = (F.col("counts.start") == F.col("s.start")) & F.expr("counts.user = s.user")
        merging = batch.alias("s").mergeInto("lake.default.counts", same)
        if number % 4:
            merging.whenMatched().updateAll().whenNotMatched().insertAll().merge()
        else:
            merging.whenMatched().update({"n": F.col("s.n")}).whenNotMatched().insertAll().merge()

counts.writeStream.outputMode("update").foreachBatch(merge).start().awaitTermination()
"""


def test_a_function_that_merges_by_keys_leaves_the_newest_row_of_each(
    tmp_path: Path, lake: Catalog
) -> None:
    history = Lake(tmp_path, lake, STEPS)
    program = tmp_path / "app.py"
    program.write_text(MERGING)
    settings = history.settings("merged", program, 1, ("counts",))
    (counts,) = settings.outputs
    keyed = counts.model_copy(update={"keys": ("start", "user")})
    settings = settings.model_copy(update={"outputs": (keyed,)})
    assign(settings, history.header, STEPS)
    with driver(settings) as process:
        assert process.wait(DEADLINE_SECONDS) == 0
    end = status(settings)
    assert end.phase == "Finished"
    assert "timestampColumn" in end.queries[0].open_unknown, "its function makes that column"
    _compare(
        lake,
        "merged",
        {
            "counts": 'select time_bucket(interval 1 hour, "at") as start, user, count(*) as n'
            " from events group by all"
        },
    )


def _compare(lake: Catalog, backfill: str, wanted: dict[str, str]) -> None:
    """Compares the results of a Backfill with what DuckDB makes of the events."""
    events = lake.load_table("default.events").scan().to_arrow()
    for output, query in wanted.items():
        table = lake.load_table(f"default.{output}")
        head = table.snapshot_by_name(f"backfill/{backfill}")
        assert head is not None, f"{output} has a result, be it without rows"
        connection = duckdb.connect()
        connection.register("events", events)
        connection.register("branch", table.scan(snapshot_id=head.snapshot_id).to_arrow())
        columns = ", ".join(f'"{field.name}"' for field in table.schema().fields)
        found = connection.sql(
            f"with wanted as (select {columns} from ({query})), given as (select {columns} from branch)"
            " (from wanted except all from given) union all (from given except all from wanted)"
        ).fetchall()
        assert found == [], output
