"""A delivery gives the program's own code what its query gave, on every Spark."""

from collections import Counter
from pathlib import Path

import pytest
from production import Production, ended
from pyiceberg.catalog import Catalog

from histories import events, land, query

READ = """
    SELECT * FROM clicks
    WHERE ingested >= TIMESTAMPTZ '2024-03-01 02:00Z' AND ingested < TIMESTAMPTZ '2024-03-01 08:00Z'
"""
APPLICATION = """
import threading
import time
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
records = spark.readStream.format("kafka").option("subscribe", "clicks").load()
schema = "title long, viewer long, at timestamp"
clicks = records.select(F.from_json(F.col("value").cast("string"), schema).alias("e")).select("e.*")
spark.conf.set("spark.sql.session.timeZone", "America/New_York")
values = clicks.select(
    F.col("title").cast("tinyint").alias("small"),
    (F.col("title").cast("decimal(38,9)") / 7).cast("decimal(38,9)").alias("share"),
    F.col("at").cast("timestamp_ntz").alias("local"),
    F.col("at").cast("date").alias("day"),
    F.split(F.col("at").cast("string"), " ").alias("words"),
    F.struct(F.lit(1).alias("one"), F.array(F.col("at").cast("timestamp_ntz")).alias("times")).alias("in.side"),
    F.create_map(F.lit("a"), F.col("viewer")).alias("by key"),
    F.expr("if(viewer > 3, null, double('NaN'))").alias("none"),
)
told = "to_json(struct(" + ", ".join(f"`{name}`" for name in values.columns) + "))"


def compare(batch, number):
    rows = batch.select("told", F.expr(told).alias("again")).collect()
    with open("DIRECTORY/compared", "a") as file:
        print(len(rows), sum(row.told != row.again for row in rows), file=file)


def leader(batch, number):
    with open("DIRECTORY/leader", "w") as file:
        print([row["count"] for row in batch.limit(3).collect()], file=file)


class Lines:
    def open(self, partition, number):
        self.file = open(f"DIRECTORY/lines/{number}-{partition}", "w")
        return True

    def process(self, row):
        print(row.title, file=self.file)

    def close(self, error):
        self.file.close()


def counted(place):
    at_work = []

    def store(batch, number):
        if at_work:
            raise RuntimeError("a thread of the last call is at work")
        at_work.append(number)
        threading.Thread(target=write, args=(batch,), daemon=True).start()

    def write(batch):
        time.sleep(0.5)
        with open(f"DIRECTORY/{place}", "a") as file:
            print(batch.count(), file=file)
        at_work.clear()

    return lambda batch, number: store(batch, number)


for place in ("one", "two"):
    chosen = clicks.where(f"viewer {'=' if place == 'one' else '<>'} 1")
    placed = chosen.writeStream.option("checkpointLocation", f"s3a://lake/{place}")
    placed.foreachBatch(counted(place)).start()
    chosen.writeStream.foreachBatch(counted(f"{place} again")).start()
clicks.writeStream.queryName("the lines").foreach(Lines()).start()
values.withColumn("told", F.expr(told)).writeStream.foreachBatch(compare).start()
ranked = clicks.groupBy("viewer").count().orderBy(F.desc("count"))
ranked.writeStream.outputMode("complete").foreachBatch(leader).start()
spark.streams.awaitAnyTermination()
"""


@pytest.mark.timeout(900)
def test_values_and_the_order_of_rows_are_those_that_the_query_gave(
    lake: Catalog, tmp_path: Path
) -> None:
    clicks, arrived = events(1_500, "at", set(), seed=3)
    land(lake.create_table("raw.clicks", clicks.schema), clicks, arrived, files=12, seed=3)
    read = query(READ, clicks=clicks)
    (tmp_path / "lines").mkdir()
    production = Production(tmp_path, lake)
    delivers = {
        "leader": {"deliver": {"batchInterval": "7d"}},
        "the-lines": {},
        "foreachBatch-one": {},
        "foreachBatch-two": {},
        "foreachBatch": {},
        "foreachBatch-2": {},
        "compare": {"approval": "Automatic", "deliver": {"batchInterval": "7d"}},
    }
    production.describe(
        APPLICATION.replace("DIRECTORY", str(tmp_path)),
        window={"start": "2024-03-01T02:00:00Z", "end": "2024-03-01T08:00:00Z"},
        sources=[
            {
                "name": "clicks",
                "table": "lake.raw.clicks",
                "timestampColumn": "ingested",
                "live": {"kafka": {"topic": "clicks"}},
            }
        ],
        maxMisalignment="2h",
        outputs=[
            {
                "name": name,
                "table": f"lake.staged.{name}",
                "publish": {"mode": "Deliver", **publish},
            }
            for name, publish in delivers.items()
        ],
    )
    end = production.run()
    assert end.status == 3, f"{end.err}\n{production.driver_log()}"
    assert (tmp_path / "compared").read_text().split() == [str(read.num_rows), "0"]
    assert not (tmp_path / "leader").exists(), "it is not approved"
    end = ended(production.start("approve", "again", "--state-dir", str(production.state)))
    assert end.status == 0, f"{end.err}\n{production.driver_log()}"
    ones = sum(row["viewer"] == 1 for row in read.to_pylist())
    found = {
        place: sum(map(int, (tmp_path / place).read_text().split()))
        for place in ("one", "two", "one again", "two again")
    }
    others = read.num_rows - ones
    assert found == {"one": ones, "two": others, "one again": ones, "two again": others}
    most = Counter(row["viewer"] for row in read.to_pylist()).most_common(3)
    assert (tmp_path / "leader").read_text().strip() == str([count for _, count in most])
    lines = [line for file in (tmp_path / "lines").iterdir() for line in file.read_text().split()]
    assert len(lines) == read.num_rows
    assert len((tmp_path / "compared").read_text().splitlines()) == 1, "not a second time"
