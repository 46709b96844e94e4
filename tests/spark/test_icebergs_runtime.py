"""Programs with Iceberg's runtime and catalogs of their own run as they are, and what a backfill
reads of a table is what Iceberg's own library reads.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivers import ROWS_PER_STEP, START, Lake, assign, run_applications, status
from pyiceberg.catalog import Catalog

from backfill.api.spec import BackfillSpec
from backfill.outputs.publication import publish
from backfill.outputs.undo_publication import Undo
from backfill.planning.planner import make_plan
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.spark_versions import SPARK
from iceberg_runtime import catalog_conf, find_runtime
from small_java import ON_A_FEW_ROWS
from staged import DAY_US, HOUR_US, RESULT, WINDOW, output, stage

STEPS = 2
DIMENSIONS = """
spark.sql("create table lake.default.merged (user bigint, name string, old int) using iceberg tblproperties ('format-version'='2', 'write.delete.mode'='merge-on-read')")
spark.sql("insert into lake.default.merged select id, concat('m', id), 1 from range(0, 40, 1, 1)")
spark.sql("delete from lake.default.merged where user % 4 = 3")
spark.sql("alter table lake.default.merged drop column old")
spark.sql("alter table lake.default.merged add column place struct<city: string, `po box`: decimal(9,2)>")
spark.sql("alter table lake.default.merged rename column name to called")
spark.sql("insert into lake.default.merged select id, concat('n', id), named_struct('city', 'x', 'po box', 1.25) from range(40, 50)")
spark.sql("create table lake.default.vectors (user bigint, at timestamp, day date) using iceberg partitioned by (bucket(4, user), day) tblproperties ('format-version'='3', 'write.delete.mode'='merge-on-read', 'write.format.default'='parquet')")
spark.sql("insert into lake.default.vectors select id, timestamp'2021-07-11 00:00:00', date'2021-07-11' from range(0, 40, 1, 1)")
spark.sql("delete from lake.default.vectors where user > 5 and user % 2 = 0")
spark.sql("create table lake.default.rewritten (user bigint, many array<map<string, bigint>>) using iceberg")
spark.sql("insert into lake.default.rewritten select id, array(map('a', id), map()) from range(20)")
spark.sql("update lake.default.rewritten set many = null where user = 1")
spark.sql("create table lake.default.unchanged using iceberg as select id user from range(40)")
spark.sql("create table lake.default.again using iceberg as select id user from range(40)")
spark.sql("create table lake.default.unlisted (user bigint, called string) using iceberg")
spark.sql("insert into lake.default.unlisted select id, concat('u', id) from range(40)")
spark.sql("alter table lake.default.copies set tblproperties ('format-version'='3')")
"""
"""Made as Spark makes them: what is left of three tables after deletes of all kinds."""
VARIANT = """
spark.sql("alter table lake.default.clicks set tblproperties ('format-version'='3')")
spark.sql("alter table lake.default.clicks add column said variant")
spark.sql("insert overwrite lake.default.clicks select other, then, parse_json('[1]') from lake.default.clicks")
"""
"""A column that nobody can pass on, in the files of a stream."""
LISTED = ("merged", "vectors", "rewritten")
IN_EXPRESSIONS = ("unchanged", "again")
LATER = """
for name in ("merged", "vectors", "rewritten"):
    spark.sql(f"delete from lake.default.{name} where user < 2")
spark.sql("drop table lake.default.again")
spark.sql("create table lake.default.again using iceberg as select id user from range(10)")
"""
"""What happened after the plan was made."""
PREAMBLE = """
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.config(map=CATALOG).getOrCreate()
"""
TWO_STREAMS = """
events = spark.readStream.format("iceberg").load("lake.default.events").withWatermark("at", "10 minutes")
clicks = spark.readStream.table("lake.default.clicks").withWatermark("then", "10 minutes")
joined = events.join(clicks, F.expr("id = other and then between at and at + interval 1 minute"))
unlisted = spark.table("lake.default.unlisted").select("user", F.col("called").alias("again"))
(latest,) = spark.table("lake.default.merged.refs").where("name = 'main'").head(1)
chosen = spark.sql(f"select user from lake.default.merged version as of {latest.snapshot_id}")
by_sql = spark.sql("select user, called from lake.default.merged where called is not null")
named = joined.join(unlisted, "user").join(by_sql, "user").join(chosen, "user", "left")
checked = named.where("again = concat('u', user) and called = concat('m', user)").select("id", "user", "at")
"""
PROGRAMS = {
    "written as a stream": """
checked.writeStream.format("iceberg").outputMode("append").option("checkpointLocation", "/nowhere").toTable("lake.default.copies")
spark.streams.awaitAnyTermination()
""",
    "merged in a function": """
def merge(rows, number):
    rows.createOrReplaceTempView("fresh")
    rows.sparkSession.sql(
        "merge into lake.default.copies t using (select f.* from fresh f join lake.default.merged using (user)) s"
        " on t.id = s.id when matched then update set * when not matched then insert *"
    )
checked.writeStream.foreachBatch(merge).start().awaitTermination()
""",
    "appended in a function": """
checked.writeStream.foreachBatch(lambda rows, number: rows.writeTo("lake.default.copies").append()).start().awaitTermination()
""",
}
AS_NOW = "reads lake.default.{} through Spark's own catalog, as it is now"
_WRITES = '.select("id", "user", "at").writeStream.toTable("lake.default.copies")'
_IN = 'named.where("user in (select user from lake.default.{})")'
REFUSED = {
    "in an expression": ("merged", f"{_IN.format('merged')}{_WRITES}"),
    "in an expression, with the rows of the plan": (
        "unchanged",
        f"{_IN.format('unchanged')}{_WRITES}",
    ),
    "in an expression, created again": ("again", f"{_IN.format('again')}{_WRITES}"),
    "from the branch of its present rows": (
        "merged",
        f"""
now = spark.sql("select user from lake.default.merged version as of 'main'")
named.join(now, "user"){_WRITES}
""",
    ),
    "in an expression of a function": (
        "merged",
        """
spark.conf.set("spark.sql.maxPlanStringLength", 100)
def keep(rows, number):
    rows.where("user = 1").writeTo("lake.default.copies").append()
    rows.where("user in (select user from lake.default.merged)").writeTo("lake.default.copies").append()
checked.writeStream.foreachBatch(keep).start().awaitTermination()
""",
    ),
}
"""Programs that read a listed table where its name is not seen."""
SAME_ROWS = """
for name, snapshot in SNAPSHOTS.items():
    assert spark.catalog.tableExists(f"default.{name}")
    theirs = spark.sql(f"select * from lake.default.{name} version as of {snapshot}")
    read = [spark.table(f"lake.default.{name}"), spark.sql(f"select * from lake.default.{name}")]
    read.append(spark.read.option("split-size", 1000).table(f"lake.default.{name}"))
    read.append(spark.sql("select * from identifier(:table)", {"table": f"lake.default.{name}"}))
    spark.sql("use lake.default")
    read += [spark.table(name), spark.sql(f"select {name}.* from {name}")]
    spark.catalog.setCurrentCatalog("spark_catalog")
    for ours in read:
        assert ours.schema.simpleString() == theirs.schema.simpleString(), (ours.schema, theirs.schema)
        rows = [sorted(map(str, each.collect())) for each in (ours, theirs)]
        assert rows[0] == rows[1] and rows[0], (name, rows)
"""

TABLES = ("replaced", "undone", "upgraded")
PRODUCTION = """
spark.conf.set("spark.sql.session.timeZone", "UTC")
parts = {"replaced": "", "undone": "partitioned by (days(ts))", "upgraded": "partitioned by (bucket(3, id))"}
for name, part in parts.items():
    table = f"lake.raw.{name}"
    version = 2 if name == "upgraded" else 3
    spark.sql(f"create table {table} (id bigint not null, ts timestamp, who string) using iceberg {part} tblproperties ('format-version'='{version}', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')")
    spark.sql(f"insert into {table} select /*+ coalesce(1) */ id, timestamp'2021-07-10 20:00:00' + id * interval 5 minutes, 'production' from range(400)")
    spark.sql(f"delete from {table} where id % 7 = 3")
    spark.sql(f"update {table} set who = 'updated' where id % 11 = 5")
    spark.sql(f"delete from {table} where id % 13 = 6")
    spark.sql(f"alter table {table} set tblproperties ('format-version'='3')")
"""
"""Every table has files with rows of the window and others, and deletes of each."""
NUMBERS = """
import json
from pathlib import Path
def numbers(file):
    found = {name: spark.sql(f"select id, ts, _row_id, _last_updated_sequence_number, who from lake.raw.{name}").collect() for name in TABLES}
    Path(file).write_text(json.dumps({name: {row[0]: [str(row[1]), *row[2:]] for row in rows} for name, rows in found.items()}))
"""
MAINTENANCE = """
for name in TABLES:
    spark.sql(f"delete from lake.raw.{name} where id % 17 = 2")
    spark.sql(f"call lake.system.rewrite_data_files(table => 'raw.{name}', options => map('rewrite-all', 'true'))")
    spark.sql(f"call lake.system.rewrite_manifests('raw.{name}')")
    spark.sql(f"call lake.system.expire_snapshots(table => 'raw.{name}', older_than => timestamp '2100-01-01 00:00:00', retain_last => 1)")
"""


def in_spark(directory: Path, jars: str, statements: str) -> None:
    """Runs statements in plain Spark with Iceberg's runtime."""
    conf = (
        ON_A_FEW_ROWS | catalog_conf(directory) | {"spark.jars": jars, "spark.master": "local[2]"}
    )
    program = PREAMBLE.replace("CATALOG", repr(conf)) + statements
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def clicks(step: int) -> pa.Table:
    """One for each event, at the same time."""
    first = step * ROWS_PER_STEP
    at = [START + timedelta(seconds=10 * row) for row in range(first, first + ROWS_PER_STEP)]
    rows = {"other": range(first, first + ROWS_PER_STEP), "then": at}
    kinds = pa.schema([("other", pa.int64()), ("then", pa.timestamp("us", tz="UTC"))])
    return pa.table({name: list(values) for name, values in rows.items()}, kinds)


def planned(history: Lake, lake: Catalog) -> dict[str, int]:
    """Plans the streams and the listed tables; gives the tables' snapshots."""
    manifest = history.spec.to_manifest()
    source = {"name": "clicks", "table": "lake.default.clicks", "timestampColumn": "then"}
    manifest["sources"].append(source)
    listed = (*LISTED, *IN_EXPRESSIONS)
    manifest["staticTables"] = [{"table": f"lake.default.{name}"} for name in listed]
    history.spec = BackfillSpec.model_validate(manifest)
    history.header = make_plan(history.spec, history.workspace, parallelism=1)
    tables = {name: lake.load_table(f"default.{name}") for name in LISTED}
    return {name: table.metadata.current_snapshot_id or 0 for name, table in tables.items()}


@pytest.mark.timeout(900)
def test_programs_read_and_write_as_in_production(tmp_path: Path, lake: Catalog) -> None:
    jars = find_runtime()
    history = Lake(tmp_path, lake, STEPS)
    table = lake.create_table("default.clicks", schema=clicks(0).schema)
    for step in range(STEPS):
        table.append(clicks(step))
    in_spark(tmp_path, jars, DIMENSIONS + (VARIANT if SPARK >= (4, 0) else ""))
    snapshots = planned(history, lake)
    in_spark(tmp_path, jars, LATER)
    without = (
        "source clicks: lake.default.clicks is read without said, since columns of type variant"
    )
    assert any(each.startswith(without) for each in history.header.warnings) == (SPARK >= (4, 0))

    delta = {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"}
    preamble = PREAMBLE.replace("CATALOG", repr(catalog_conf(tmp_path) | delta))
    same_rows = f"SNAPSHOTS = {json.dumps(snapshots)}\n{SAME_ROWS}"

    def settings(number: int, program: str, **more: Any) -> RuntimeSettings:
        main_file = tmp_path / f"application_{number}.py"
        main_file.write_text(preamble + same_rows + TWO_STREAMS + program)
        made = history.settings(f"case-{number}", main_file)
        conf = made.spark_conf | {"spark.jars": jars}
        outputs = [each.model_copy(update={"keys": ("id",)}) for each in made.outputs]
        made = made.model_copy(update={"spark_conf": conf, "outputs": tuple(outputs), **more})
        assign(made, history.header, history.header.steps)
        return made

    ways = [(name, "Auto") for name in PROGRAMS] + [("written as a stream", "Streaming")]
    ways += [(name, "Auto") for name in REFUSED]
    programs = PROGRAMS | {name: program for name, (_, program) in REFUSED.items()}
    runs = {
        (name, how): settings(number, programs[name], execution=how)
        for number, (name, how) in enumerate(ways)
    }
    outcomes = dict(zip(runs, run_applications(tmp_path, list(runs.values())), strict=True))
    for name, (listed, _) in REFUSED.items():
        phase, reason, message = outcomes.pop((name, "Auto"))
        assert (phase, reason) == ("Failed", "UnsupportedProgram"), (name, message)
        assert AS_NOW.format(listed) in message, (name, message)
    assert {run: outcome for run, outcome in outcomes.items() if outcome[0] != "Finished"} == {}
    for name, how in outcomes:
        made = runs[name, how]
        rows = history.result(made.backfill, "copies")
        ids = Counter(row["id"] for row in rows)
        assert ids == Counter(range(STEPS * ROWS_PER_STEP)), (name, how)
        (query,) = status(made).queries
        streamed = how == "Streaming" or "function" in name
        assert query.execution == ("Streaming" if streamed else "Batch"), (name, how)


@pytest.mark.timeout(900)
def test_rows_of_tables_of_format_3_keep_their_numbers(tmp_path: Path, lake: Catalog) -> None:
    jars = find_runtime()

    def numbers(statements: str, name: str) -> dict[str, dict[str, list[Any]]]:
        preamble = f"TABLES = {TABLES}\n{NUMBERS}"
        in_spark(tmp_path, jars, f"{preamble}{statements}\nnumbers({name!r})\n")
        found: dict[str, dict[str, list[Any]]] = json.loads((tmp_path / name).read_text())
        return found

    before = numbers(PRODUCTION, "before")
    for name in TABLES:
        table = lake.load_table(f"raw.{name}")
        base = table.metadata.current_snapshot_id
        stage(table, 0, [(1000, 0), (1001, HOUR_US)])
        stage(table.refresh(), 1, [(1002, DAY_US - 1)])
        to = output(table=f"lake.raw.{name}")
        published = publish(to, RESULT, WINDOW, base)
        if name == "undone":
            Undo(to, RESULT, WINDOW, published.snapshot_id).run()
    after = numbers("", "after")
    assert after["undone"] == before["undone"]
    for name in ("replaced", "upgraded"):
        stay = {row for row, (at, *_) in before[name].items() if not at.startswith("2021-07-11")}
        assert {*after[name]} == {*stay, "1000", "1001", "1002"}
        given = [number for _, number, *_ in after[name].values()]
        assert None not in given
        assert len({*given}) == len(given)
        if name == "replaced":
            assert {row: after[name][row] for row in stay} == {
                row: before[name][row] for row in stay
            }
            known = {number for _, number, *_ in before[name].values()}
            assert not known & {after[name][str(row)][1] for row in (1000, 1001, 1002)}

    later = numbers(MAINTENANCE, "later")
    for name, rows in after.items():
        assert later[name] == {row: rows[row] for row in rows if int(row) % 17 != 2}
