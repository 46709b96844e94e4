"""An unmodified program that writes to a database, a web service, a topic and a table: the table is
published, and the rest is delivered to real servers after a person has approved it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from production import DEADLINE_SECONDS, Production, ended
from pyiceberg.catalog import Catalog
from store_servers import find_programs, postgresql

from histories import UTC_TIME, events, land, query
from kafka_broker import Jars, find_jars, kafka_broker
from waiting import eventually

APPLICATION = """
import psycopg2
import requests
from psycopg2.extras import execute_values
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.config("spark.jars", "JARS").getOrCreate()
records = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "BROKER")
records = records.option("subscribe", "clicks").load()
schema = "title long, viewer long, at timestamp"
clicks = records.select(F.from_json(F.col("value").cast("string"), schema).alias("e")).select("e.*")
per_title = clicks.groupBy("title").agg(F.count("*").alias("count"), F.max("at").alias("last"))


def upsert(batch, number):
    with psycopg2.connect("DATABASE") as connection, connection.cursor() as cursor:
        rows = [tuple(row) for row in batch.collect()]
        execute_values(cursor, "INSERT INTO titles VALUES %s ON CONFLICT (title)"
            " DO UPDATE SET count = EXCLUDED.count, last = EXCLUDED.last", rows)
    if number == 2:
        requests.get("SERVICE/hold")


def post(rows):
    for row in rows:
        requests.post("SERVICE", json={"title": row.title, "viewer": row.viewer}).raise_for_status()


per_title.writeStream.outputMode("update").foreachBatch(upsert).start()
clicks.where("viewer = 1").writeStream.queryName("alerts").foreachBatch(
    lambda batch, number: batch.foreachPartition(post)).start()
(per_title.select(F.to_json(F.struct("title", "count")).alias("value"))
    .writeStream.outputMode("update").format("kafka").option("kafka.bootstrap.servers", "BROKER")
    .option("topic", "totals").option("checkpointLocation", "elsewhere").start())
clicks.writeStream.format("iceberg").outputMode("append").toTable("lake.raw.copies")
spark.streams.awaitAnyTermination()
"""
CONSUMER = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.jars", sys.argv[1]).getOrCreate()
records = spark.read.format("kafka").option("kafka.bootstrap.servers", sys.argv[2])
rows = records.option("subscribe", sys.argv[3]).load().orderBy("partition", "offset")
for row in rows.selectExpr("CAST(value AS STRING) AS value").collect():
    print(row.value)
"""


@contextmanager
def service(posted: list[dict[str, Any]], asked: threading.Event) -> Iterator[str]:
    """A web service that keeps what it is sent, and does not answer until it is asked twice."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer()

        def do_GET(self) -> None:
            first = not asked.is_set()
            asked.set()
            if not first:
                self._answer()

        def _answer(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def sent(jars: Jars, broker: str, topic: str) -> list[dict[str, Any]]:
    """The values of a topic."""
    command = [sys.executable, "-c", CONSUMER, jars.for_spark, broker, topic]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_database_a_service_and_a_topic_get_what_was_approved(
    lake: Catalog, tmp_path: Path
) -> None:
    clicks, arrived = events(1_500, "at", set(), seed=5)
    land(lake.create_table("raw.clicks", clicks.schema), clicks, arrived, files=12, seed=5)
    columns = [("title", pa.int64()), ("viewer", pa.int64()), ("at", UTC_TIME)]
    lake.create_table("raw.copies", pa.schema(columns))
    jars, programs = find_jars(), find_programs()
    posted: list[dict[str, Any]] = []
    asked = threading.Event()
    with (
        postgresql(programs, "writer", "secret-of-writer") as database,
        kafka_broker(jars, tmp_path, creates_topics=True) as broker,
        service(posted, asked) as address,
    ):
        url = f"postgresql://writer:secret-of-writer@{database}/postgres"
        with psycopg2.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE titles (title bigint PRIMARY KEY, count int, last timestamptz)"
            )
        text = APPLICATION
        for name, value in {
            "JARS": jars.for_spark,
            "BROKER": broker,
            "DATABASE": url,
            "SERVICE": address,
        }.items():
            text = text.replace(name, value)
        production = Production(tmp_path, lake)
        names = ("upsert", "alerts", "totals")
        production.describe(
            text,
            window={"start": "2024-03-01T00:00:00Z", "end": "2024-03-02T00:00:00Z"},
            sources=[
                {
                    "name": "clicks",
                    "table": "lake.raw.clicks",
                    "timestampColumn": "ingested",
                    "live": {"kafka": {"topic": "clicks"}},
                }
            ],
            maxMisalignment="4h",
            outputs=[
                *(
                    {
                        "name": name,
                        "table": f"lake.staged.{name}",
                        "publish": {"mode": "Deliver"},
                    }
                    for name in names
                ),
                {"name": "copies", "table": "lake.raw.copies", "publish": {"mode": "Append"}},
            ],
        )
        end = production.run()
        assert end.status == 3, f"{end.err}\n{production.driver_log()}"
        assert production.output("raw.copies").num_rows > 0
        assert not posted
        approving = production.start("approve", "again", "--state-dir", str(production.state))
        eventually(asked.is_set, production.driver_log, DEADLINE_SECONDS)
        os.kill(production.driver(), signal.SIGKILL)
        end = ended(approving)
        assert end.status == 0, f"{end.err}\n{production.driver_log()}"

        read = production.output("raw.copies")
        totals = query(
            'SELECT title, count(*) AS count, max("at") AS last FROM read GROUP BY ALL', read=read
        )
        right = {row["title"]: (row["count"], row["last"]) for row in totals.to_pylist()}
        with psycopg2.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT * FROM titles")
            assert {title: (count, last) for title, count, last in cursor} == right
        one = Counter(row["title"] for row in read.to_pylist() if row["viewer"] == 1)
        assert Counter(each["title"] for each in posted) == one
        values = sent(jars, broker, "totals")
        last = {each["title"]: each["count"] for each in values}
        assert last == {title: count for title, (count, _) in right.items()}
        assert "secret-of-writer" not in end.err + end.out
