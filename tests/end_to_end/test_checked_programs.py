"""``backfill check``: programs without any data, whose functions get an empty batch."""

import json
import socket
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from production import Production, ended
from pyiceberg.catalog import Catalog

from backfill.api.manifests.backfill_manifest import load_manifests
from local_ports import free_port

READ = """
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
raw = (spark.readStream.format("kafka").option("kafka.bootstrap.servers", "kafka:9092")
    .option("subscribe", "clicks").load())
fields = "user string, at timestamp"
clicks = raw.select(F.from_json(F.col("value").cast("string"), fields).alias("v")).select("v.*")
counts = clicks.withWatermark("at", "1 minute").groupBy(F.window("at", "1 hour"), "user").count()
"""
GOOD = """
def save(batch, number):
    if not batch.isEmpty():
        batch.createOrReplaceTempView("updates")
        batch.sparkSession.sql("MERGE INTO lake.raw.counts t USING updates s ON t.user = s.user"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
        batch.write.format("iceberg").mode("append").save("lake.raw.changes")


counts.writeStream.outputMode("update").foreachBatch(save).start()
counts.writeStream.outputMode("complete").queryName("whole").foreachBatch(
    lambda batch, number: batch.write.mode("overwrite").saveAsTable("lake.raw.whole")).start()
counts.writeStream.format("iceberg").option("checkpointLocation", "here").toTable("lake.raw.hourly")
spark.streams.awaitAnyTermination()
"""
REFUSED = """
import socket


def connect(batch, number):
    while True:
        try:
            socket.create_connection(("127.0.0.1", PORT)).sendall(b"a row")
            return
        except Exception:
            pass  # as programs do, which try again


def later(batch, number):
    for row in batch.collect():
        socket.create_connection(("127.0.0.1", PORT))


clicks.writeStream.foreachBatch(connect).start()
clicks.writeStream.foreachBatch(later).start()
clicks.writeStream.queryName("parts").foreachBatch(
    lambda batch, number: batch.foreachPartition(print)).start()
clicks.writeStream.queryName("rows").foreach(print).start()
clicks.writeStream.queryName("last").foreachBatch(
    lambda batch, number: batch.write.mode("overwrite").parquet("WRITTEN")).start()
spark.streams.awaitAnyTermination()
"""
DOUBTFUL = """
import os
import sqlite3


def save(batch, number):
    sqlite3.connect("rows.db").execute("CREATE TABLE made (a int)")


def fails(batch, number):
    raise ValueError("no rows")


def shells(batch, number):
    batch.write.mode("append").saveAsTable("lake.raw.rows")
    for row in batch.collect():
        os.system("touch made")


def gives_up(batch, number):
    raise SystemExit(1)


clicks.writeStream.foreachBatch(save).start()
clicks.writeStream.foreachBatch(fails).start()
clicks.writeStream.foreachBatch(gives_up).start()
if SHELLS:
    clicks.writeStream.foreachBatch(shells).start()
clicks.writeStream.queryName("none").foreachBatch(lambda batch, number: None).start()
spark.streams.awaitAnyTermination()
"""


def test_programs_are_told_what_a_backfill_makes_of_them(lake: Catalog, tmp_path: Path) -> None:
    production = Production(tmp_path, lake)
    with socket.create_server(("127.0.0.1", 0)) as server:
        refused = REFUSED.replace("PORT", str(server.getsockname()[1]))
        refused = refused.replace("WRITTEN", str(tmp_path / "written"))
        programs = {
            "good.py": GOOD,
            "refused.py": refused,
            "doubtful.py": f"SHELLS = False\n{DOUBTFUL}",
        }
        programs["shells.py"] = f"SHELLS = True\n{DOUBTFUL}"
        for name, text in programs.items():
            (tmp_path / name).write_text(READ + text)
        (tmp_path / "ends.py").write_text("raise SystemExit('no configuration')")
        end = ended(production.start("check", *programs, "ends.py", "--output", "json"))
        server.settimeout(0)
        try:
            server.accept()
        except BlockingIOError:
            pass
        else:
            raise AssertionError("a function has connected")
    assert end.status == 1, end.err
    good, refused_one, doubtful, shells, ends = map(json.loads, end.out.splitlines())
    assert not (tmp_path / "written").exists()
    assert not (tmp_path / "rows.db").exists()

    assert (good["verdict"], good["reads"], good["problems"], good["doubts"]) == (
        "Unmodified",
        ["topic clicks"],
        [],
        [],
    )
    assert [(each["name"], each["writes"]) for each in good["queries"]] == [
        (
            "save",
            [
                "lake.raw.counts (spark.sql (MERGE), by user)",
                "lake.raw.changes (write.format(iceberg).save)",
            ],
        ),
        ("whole", ["lake.raw.whole (write.saveAsTable)"]),
        (None, ["lake.raw.hourly (iceberg, append)"]),
    ]

    assert good["run"] == "backfill run FILE --window START/END --publish MODE"

    assert (refused_one["verdict"], refused_one["run"]) == ("Doubtful", None)
    said = [each["message"] for each in refused_one["problems"]]
    for words, message in zip(
        (
            "foreachBatch connects to 127.0.0.1:",
            "runs code on executors (foreachPartition)",
            "runs the application's own code for each row",
            "overwrites ",
        ),
        said,
        strict=True,
    ):
        assert words in message
        assert "refused.py, line " in message
    assert all(each["fix"] for each in refused_one["problems"])
    (doubt,) = refused_one["doubts"]
    assert doubt.startswith("the function later may use socket: a backfill refuses")

    assert doubtful["verdict"] == "Doubtful"
    not_called, failed, gave_up, nothing = doubtful["doubts"]
    assert not_called == (
        "the function save was not called, since what sqlite3 does cannot be seen"
    )
    assert failed == "the function fails failed for an empty batch: ValueError: no rows"
    assert gave_up == "the function gives_up failed for an empty batch: SystemExit: 1"
    assert nothing.startswith("the function none writes nothing of an empty batch")

    assert shells["verdict"] == "Doubtful"
    message = shells["problems"][0]["message"]
    assert "starts the process touch, which" in message, "without its arguments"
    assert not (tmp_path / "made").exists()

    assert ends["verdict"] == "Failed"
    assert "no configuration" in ends["problems"][0]["message"]


def test_topics_by_pattern_and_tables_of_unknown_catalogs(lake: Catalog, tmp_path: Path) -> None:
    production = Production(tmp_path, lake)
    pattern = READ.replace('"subscribe", "clicks"', '"subscribePattern", "click.*"')
    (tmp_path / "pattern.py").write_text(pattern + GOOD)
    table = 'raw = spark.readStream.table("elsewhere.raw.clicks")\n'
    (tmp_path / "table.py").write_text("\n".join((*READ.splitlines()[:3], table)))
    end = ended(production.start("check", "pattern.py", "table.py", "--output", "json"))
    assert end.status == 1, end.err
    by_pattern, of_table = map(json.loads, end.out.splitlines())
    assert by_pattern["verdict"] == "Unmodified"
    assert by_pattern["reads"] == ["topics that match click.*"]
    assert of_table["verdict"] == "Failed"
    (problem,) = of_table["problems"]
    assert "from the table elsewhere.raw.clicks, which is in no catalog" in problem["message"]


def test_what_is_no_program_is_refused_before_anything_runs(lake: Catalog, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(READ + GOOD)
    end = ended(Production(tmp_path, lake).start("check", "good.py", "missing.py"))
    assert (end.status, end.out) == (2, "")
    assert "PROGRAM: there is no file missing.py" in end.err


SENDS = """
import socket


def send(batch, number):
    with socket.create_connection(("127.0.0.1", PORT)) as connection:
        for row in batch.collect():
            connection.sendall(row.user.encode())


def count(batch, number):
    batch.write.mode("append").saveAsTable("lake.raw.clicks_again")


clicks.writeStream.foreachBatch(send).start()
clicks.writeStream.foreachBatch(count).start()
clicks.writeStream.queryName("each").foreach(print).start()
spark.streams.awaitAnyTermination()
"""


def test_deliveries_are_proposed_and_explained_without_a_table_for_them(
    lake: Catalog, tmp_path: Path
) -> None:
    times = pa.timestamp("us", "UTC")
    columns = [("user", pa.string()), ("at", times), ("ingested_at", times)]
    at = datetime(2024, 3, 1, 12, tzinfo=UTC)
    rows = pa.table({"user": ["ann"], "at": [at], "ingested_at": [at]}, pa.schema(columns))
    lake.create_table("raw.clicks", rows.schema).append(rows)
    lake.create_table("raw.clicks_again", pa.schema(columns[:2]))
    production = Production(tmp_path, lake)
    production.describe("")
    (tmp_path / "app.py").write_text(READ + SENDS.replace("PORT", str(free_port())))
    arguments = ("--window", "2024-03-01/2024-03-02", "--output", "proposed.yaml")
    end = ended(production.start("init", "--application", str(production.file), *arguments))
    assert end.status == 0, end.err
    outputs = {
        each.name: each for each in load_manifests(tmp_path / "proposed.yaml").backfill.spec.outputs
    }
    assert {name: (each.table, each.publish.mode) for name, each in outputs.items()} == {
        "send": ("lake.backfill_staged.send", "Deliver"),
        "clicks_again": ("lake.raw.clicks_again", "None"),
        "each": ("lake.backfill_staged.each", "Deliver"),
    }
    planned = ended(production.start("plan", "proposed.yaml", "--explain"))
    assert planned.status == 0, planned.err
    assert "its rows are delivered one micro-batch at a time" in " ".join(planned.out.split())
    assert lake.list_namespaces() == [("raw",)], "nothing is made by a plan"
