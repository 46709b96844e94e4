"""The state of history goes on with live Kafka: what history and the live application give together
is what an uninterrupted run on Kafka gives, row by row. The broker is a real one.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import hand_off_by_time as by_time
import pyarrow as pa
import pytest
from drivers import START, assign, kill_once, run_applications, status
from json_lines_sink import rows_in
from pyiceberg.catalog import Catalog

import backfill
from backfill.api.source import Source
from backfill.api.spec import BackfillSpec
from backfill.planning.plan import PlanHeader, plan_directory
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace
from backfill.protocol.hand_off_messages import HandOffReport, HandOffSettings, LiveReport
from backfill.runtime.settings import RuntimeSettings
from kafka_broker import Jars, find_jars, kafka_broker
from small_java import ON_A_FEW_ROWS
from waiting import PATIENCE_SECONDS

HISTORY_ROWS, LIVE_ROWS = 240, 180
HISTORY_PARTITIONS = 2
EVERY = timedelta(seconds=10)
RETENTION = timedelta(days=36_500)
"""How long Kafka keeps clicks. Other topics are kept for good, or compacted."""
OTHER_TOPICS = {"events": ("trimmed", "younger", "missing"), by_time.SOURCE: (by_time.REMOVED,)}
PARTITIONS = {"events": 3, "clicks": 11, "single": 1}
"""With rows of history."""
SENT_OUTPUTS = {"sent", "tallies"}
"""Outputs that are topics. Each has the name of the output and of a directory in ``SENDERS``."""
SENDERS = ("live", "uninterrupted")
"""The directories where other programs write."""
KAFKA_PARTITIONS = {"events": 4, "clicks": 12, "single": 1}
"""Of the topics in Kafka: the others have no rows in history."""
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
    ]
)
COUNTS = pa.schema(
    [("start", pa.timestamp("us", tz="UTC")), ("user", pa.int64()), ("n", pa.int64())]
)
COPIES = pa.schema([("id", pa.int64()), ("user", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
JOINED = pa.schema([*COPIES, ("click", pa.int64())])
SENT = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("value", pa.string())])
OUTPUTS = {
    "counts": COUNTS,
    "sessions": COUNTS,
    "copies": COPIES,
    "joined": JOINED,
    "right": JOINED,
    "full": JOINED,
    "sent": SENT,
    "tallies": SENT,
}
TIMES = {output: "start" if schema is COUNTS else "at" for output, schema in OUTPUTS.items()}

PREAMBLE = """
import sys
from json_lines_sink import JsonLines
from pyspark.sql import SparkSession, functions as F

servers, home = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(JsonLines)
STORES = "org.apache.spark.sql.execution.streaming.state"

def keep_state_in(store):
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", f"{STORES}.{store}StateStoreProvider")

def topic(name):
    options = {"kafka.bootstrap.servers": servers, "subscribe": name, "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed"}
    records = spark.readStream.format("kafka").options(**options).load()
    rows = records.select(F.from_json(F.col("value").cast("string"), "id long, user long, at timestamp").alias("e"))
    return rows.select("e.*").withWatermark("at", "2 minutes")

def write(frame, name):
    writer = frame.writeStream.queryName(name).format("json_lines").option("path", f"{home}/{name}")
    writer = writer.option("checkpointLocation", f"{home}/checkpoints/{name}")
    return writer.trigger(availableNow=True).start()
"""
WINDOWS = """
keep_state_in("RocksDB")
counts = topic("events").groupBy(F.window("at", "5 minutes"), "user").agg(F.count("*").alias("n"))
write(counts.select("window.start", "user", "n"), "counts").awaitTermination()
"""
TOTALS = """
keep_state_in("RocksDB")
totals = topic("events").agg(F.min("at").alias("start"), F.max("user").alias("user"), F.count("*").alias("n"))
write(totals, "counts").awaitTermination()
"""
SESSIONS_OF_A_NAMED_SOURCE = """
import json
from pathlib import Path
from backfill.runtime import read_source, write_output

Path(home).mkdir(exist_ok=True)
# less than everything moves the watermark past partitions that reach back further than others
most = "150" if Path(home).name == "live" else "1000"
Path(home, "sources.json").write_text(json.dumps({
    "sources": {"events": {"type": "kafka", "topic": "events", "schema": "id long, user long, at timestamp",
        "options": {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest",
            "minOffsetsPerTrigger": "100", "maxOffsetsPerTrigger": most, "maxTriggerDelay": "1s"}}},
    "outputs": {"sessions": {"type": "json_lines",
        "options": {"path": f"{home}/sessions", "checkpointlocation": f"{home}/checkpoints/sessions"}}},
}))
spark.conf.set("spark.backfill.sources", f"{home}/sources.json")
keep_state_in("HDFSBacked")
events = read_source(spark, "events").withWatermark("at", "2 minutes")
sessions = events.groupBy(F.session_window("at", "45 seconds"), "user").agg(F.count("*").alias("n"))
query = write_output(sessions.select("session_window.start", "user", "n"), "sessions")

def has_read_all():
    # less than minOffsetsPerTrigger are not available until the delay has passed
    found = query.lastProgress
    return found and found["sources"][0]["endOffset"] == found["sources"][0]["latestOffset"]

while query.isActive and not has_read_all():
    query.awaitTermination(0.1)
query.processAllAvailable()
query.stop()
"""
STATE_OF_ITS_OWN = """
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

class FirstOfEach(StatefulProcessor):
    def init(self, handle):
        self._handle = handle
        self._seen = handle.getMapState("seen", "id long", "there boolean")

    def handleInputRows(self, key, rows, timerValues):
        for part in rows:
            new = [not self._seen.containsKey((each,)) for each in part["id"].tolist()]
            part = part[new].drop_duplicates("id")
            for each in part["id"].tolist():
                self._seen.updateValue((each,), (True,))
            self._handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 60_000)
            yield part[["id", "user", "at"]]

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        return iter([])

    def close(self):
        pass

keep_state_in("RocksDB")
firsts = topic("events").groupBy("user").transformWithStateInPandas(FirstOfEach(), "id long, user long, at timestamp", "append", "EventTime")
write(firsts, "copies").awaitTermination()
"""
OUTER_JOINS = """
keep_state_in("RocksDB")
near = F.expr("e.user = c.user and c.at between e.at - interval 1 minute and e.at + interval 1 minute and e.id % 4 = c.id % 4")

def joined(kind, name):
    events, clicks = topic("events").alias("e"), topic("clicks").alias("c")
    either = [F.coalesce(f"e.{column}", f"c.{column}").alias(column) for column in ("id", "user", "at")]
    return write(events.join(clicks, near, f"{kind}_outer").select(*either, F.col("c.id").alias("click")), name)

for query in [joined("left", "joined"), joined("right", "right"), joined("full", "full")]:
    query.awaitTermination()
"""
COUNTS_UNTIL_A_TIMEOUT = """
import pandas as pd
from pyspark.sql.streaming.state import GroupStateTimeout

def count(key, parts, state):
    if state.hasTimedOut:
        start, n = state.get
        state.remove()
        yield pd.DataFrame({"start": [pd.Timestamp(start, unit="ms", tz="UTC")], "user": [key[0]], "n": [n]})
        return
    start, n = state.get if state.exists else (2**62, 0)
    for part in parts:
        start, n = min(start, int(part["at"].min().timestamp() * 1_000)), n + len(part)
    state.update((start, n))
    state.setTimeoutTimestamp(start + 600_000)

keep_state_in("RocksDB")
stretches = topic("single").withColumn("stretch", (F.col("id") / 35).cast("long")).groupBy("stretch")
counts = stretches.applyInPandasWithState(count, "start timestamp, user long, n long", "start long, n long", "append", GroupStateTimeout.EventTimeTimeout)
write(counts, "counts").awaitTermination()
"""
TWO_QUERIES = """
keep_state_in("RocksDB")
events = topic("events")
queries = [
    write(events.unionByName(topic("events")).dropDuplicates(["id", "at"]), "copies"),
    write(events.groupBy(F.window("at", "5 minutes"), "user").agg(F.count("*").alias("n")).select("window.start", "user", "n"), "counts"),
]
for query in queries:
    query.awaitTermination()
"""
RECORDS_WITH_MORE_COLUMNS = """
from pathlib import Path

keep_state_in("RocksDB")
tallies = topic("events").groupBy(F.window("at", "5 minutes"), "user").agg(F.min("id").alias("first"), F.count("*").alias("n"), F.max("id").alias("last"))
tallies = tallies.select("first", F.col("window.start").alias("at"), "user", "n", "last", "last")
records = tallies.select("*", F.to_json(F.struct("at", "user", "n")).alias("value"))
writer = records.writeStream.queryName("tallies").format("kafka").option("kafka.bootstrap.servers", servers)
writer = writer.option("topic", f"tallies-{Path(home).name}").option("checkpointLocation", f"{home}/checkpoints/tallies")
sending = writer.trigger(availableNow=True).start()
"""
"""Kafka ignores the columns, and their aggregates are in the state."""
SLIDING_AND_CHAINED = """
keep_state_in("RocksDB")
sliding = topic("events").groupBy(F.window("at", "10 minutes", "5 minutes"), "user").agg(F.count("*").alias("n"))
chained = sliding.groupBy(F.window("window", "20 minutes"), "user").agg(F.sum("n").alias("n"))
queries = [write(frame.select("window.start", "user", "n"), name) for frame, name in ((sliding, "counts"), (chained, "sessions"))]
for query in queries:
    query.awaitTermination()
"""
INNER_AND_SEMI_JOINS = """
keep_state_in("RocksDB")
near = F.expr("e.user = c.user and c.at between e.at - interval 1 minute and e.at + interval 1 minute and e.id % 4 = c.id % 4")
events, clicks = topic("events").alias("e"), topic("clicks").alias("c")
inner = events.join(clicks, near).select("e.id", "e.user", "e.at", F.col("c.id").alias("click"))
semi = topic("events").alias("e").join(topic("clicks").alias("c"), near, "left_semi").select("e.id", "e.user", "e.at")
queries = [write(inner, "joined"), write(semi, "copies")]
for query in queries:
    query.awaitTermination()
"""
ONE_FRAME_USED_TWICE = """
keep_state_in("RocksDB")
events, clicks = topic("events"), topic("clicks")
near = F.expr("e.user = c.user and c.at between e.at - interval 1 minute and e.at + interval 1 minute and e.id % 4 = c.id % 4")
all_of_them = clicks.union(events).union(clicks.filter("id % 3 = 0"))
joined = all_of_them.alias("e").join(events.alias("c"), near, "left_outer").select("e.id", "e.user", "e.at", F.col("c.id").alias("click"))
queries = [write(joined.dropDuplicates(["id", "at", "click"]), "joined"), write(clicks.dropDuplicates(["id", "at"]), "copies")]
for query in queries:
    query.awaitTermination()
"""
TIMERS_OF_THE_CLOCK = """
import pandas as pd
from pathlib import Path
from pyspark.sql.streaming import StatefulProcessor

class Once(StatefulProcessor):
    def init(self, handle):
        self._handle = handle
        self._seen = handle.getValueState("seen", "there boolean")

    def handleInputRows(self, key, rows, timerValues):
        if not self._seen.exists():
            self._seen.update((True,))
            wait_ms = key[0] % 2 * 4_000  # every second one is due at once
            self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + wait_ms)
        for part in rows:
            pass
        return iter([])

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield pd.DataFrame({"id": [key[0]], "user": [0], "at": [pd.Timestamp("2021-07-11T01:00:00Z")]})

    def close(self):
        pass

def complete():
    # the last ones are of live traffic only, and those of history are due before
    text = "".join(file.read_text() for file in Path(home, "copies").glob("*.json"))
    return all(f'"id": {stretch},' in text for stretch in range(7, 12))

keep_state_in("RocksDB")
stretches = topic("events").withColumn("stretch", (F.col("id") / 35).cast("long")).groupBy("stretch")
expired = stretches.transformWithStateInPandas(Once(), "id long, user long, at timestamp", "append", "ProcessingTime")
writer = expired.writeStream.queryName("copies").format("json_lines").option("path", f"{home}/copies")
query = writer.option("checkpointLocation", f"{home}/checkpoints/copies").start()
while query.isActive and not complete():
    query.awaitTermination(0.1)
query.stop()
"""
REAL_TIME = """
import json
from pathlib import Path

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
keep_state_in("RocksDB")
spark.conf.set(FORMAT, "2")
spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1s")
records = topic("single").dropDuplicates(["id", "at"]).select("at", F.to_json(F.struct("*")).alias("value"))
writer = records.writeStream.queryName("sent").format("kafka").option("kafka.bootstrap.servers", servers)
writer = writer.option("topic", f"sent-{Path(home).name}").option("checkpointLocation", f"{home}/checkpoints/sent")
query = writer.outputMode("update").trigger(realTime="1 second").start()
spark.conf.unset(FORMAT)

def has_read_all():
    # the end of the transaction follows, which is never read in this mode
    last = query.recentProgress[-2:]
    ends = [json.loads(source["endOffset"] or "{}") for each in last for source in each["sources"]]
    read_before = all(end.get("single", {}).get("0", 0) > 420 for end in ends)
    return len(last) == 2 and read_before and not any(each["numInputRows"] for each in last)

while query.isActive and not has_read_all():
    query.awaitTermination(0.1)
query.stop()
"""
PROGRAMS: dict[str, tuple[str, tuple[str, ...], int | None]] = {
    "sliding windows, and windows of these, in more partitions": (
        SLIDING_AND_CHAINED,
        ("counts", "sessions"),
        3,
    ),
    "sessions of a source by name": (SESSIONS_OF_A_NAMED_SOURCE, ("sessions",), None),
    "state of its own with timers": (STATE_OF_ITS_OWN, ("copies",), None),
    "outer joins of two topics": (OUTER_JOINS, ("joined", "right", "full"), None),
    "state in pandas that times out, of one partition": (COUNTS_UNTIL_A_TIMEOUT, ("counts",), None),
    "a topic that is read twice and written without duplicates, and records with more columns": (
        RECORDS_WITH_MORE_COLUMNS + TWO_QUERIES + "sending.awaitTermination()\n",
        ("copies", "counts", "tallies"),
        1,
    ),
    "inner and semi joins of two topics": (INNER_AND_SEMI_JOINS, ("joined", "copies"), 3),
    "one frame used twice": (ONE_FRAME_USED_TWICE, ("joined", "copies"), None),
    "timers of the clock": (TIMERS_OF_THE_CLOCK, ("copies",), None),
    "real-time mode": (REAL_TIME, ("sent",), None),
    "a source without offsets": (by_time.PROGRAM, (*by_time.UNIQUE, by_time.DOUBLED), None),
}
NO_LOCATION = """
counts = counts.select("window.start", "user", "n")
counts.writeStream.queryName("counts").format("json_lines").start().awaitTermination()
"""
REFUSED: dict[str, tuple[str, tuple[str, ...], int | None, str]] = {
    "records that Kafka has deleted": (
        WINDOWS.replace('"events"', '"trimmed"'),
        ("counts",),
        None,
        "no longer retains records of topic trimmed that come after the last row of history:"
        " offsets 80 to 84 of partition 0; wait until",
    ),
    "records of a time that Kafka has deleted": (
        WINDOWS.replace('"events"', f'"{by_time.REMOVED}"'),
        ("counts",),
        None,
        "where live traffic continues: all retained records are newer (partition 0 begins at"
        " offset 85); wait until",
    ),
    "a topic that was created again": (
        WINDOWS.replace('"events"', '"younger"'),
        ("counts",),
        None,
        "history contains rows that topic younger never had: partition 0 ends at offset 0",
    ),
    "a topic that is not there": (
        WINDOWS.replace('"events"', '"missing"'),
        ("counts",),
        None,
        "Kafka has no topic missing",
    ),
    "state that Spark cannot repartition": (
        WINDOWS.replace('"RocksDB"', '"HDFSBacked"'),
        ("counts",),
        3,
        "Spark cannot repartition the state of the query counts, which is kept in HDFSBacked",
    ),
    "state of an aggregation without keys, in more partitions": (
        TOTALS,
        ("counts",),
        5,
        "Spark cannot repartition the state of the query counts, which aggregates without keys,"
        " or has a limit, and therefore keeps its state in one partition; omit statePartitions",
    ),
    "state of a limit, in more partitions": (
        'keep_state_in("RocksDB")\nwrite(topic("events").limit(300), "copies").awaitTermination()',
        ("copies",),
        5,
        "Spark cannot repartition the state of the query copies, which aggregates without keys, or",
    ),
    "state that Spark cannot repartition where it goes": (
        WINDOWS.replace("write(", 'home += " of events"\nwrite('),
        ("counts",),
        3,
        "/live of events/checkpoints/counts has characters, such as spaces, that are encoded in",
    ),
    "a location in use": (
        WINDOWS.replace("write(", 'home += "/../../case-0/live"\nwrite('),
        ("counts",),
        None,
        "/checkpoints/counts, is in use: another Backfill, or an earlier plan of this one,",
    ),
    "no location": (
        WINDOWS.split("write(", maxsplit=1)[0] + NO_LOCATION,
        ("counts",),
        None,
        "the query counts has no checkpointLocation",
    ),
    "files of a table without a format": (
        'topic("events").writeStream.queryName("copies").option("checkpointLocation", home).toTable("copies")',
        ("copies",),
        None,
        "the query copies writes files, and Spark's log of files begins with micro-batch 0",
    ),
    "files of a table of Spark's own catalog, by its name": (
        'topic("events").writeStream.queryName("copies").option("checkpointLocation", home).toTable("spark_catalog.default.copies")',
        ("copies",),
        None,
        "the query copies writes files, and Spark's log of files begins with micro-batch 0",
    ),
    "files of an output by name": (
        SESSIONS_OF_A_NAMED_SOURCE.replace('"json_lines"', '"JSON"'),
        ("sessions",),
        None,
        "the query sessions writes files, and Spark's log of files begins with micro-batch 0",
    ),
    "a relative location": (
        WINDOWS.replace("write(", 'home = "live"\nwrite('),
        ("counts",),
        None,
        "query counts, live/checkpoints/counts, is relative",
    ),
    "offsets in another form": (
        'spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")\n' + WINDOWS,
        ("counts",),
        None,
        "sets spark.sql.streaming.offsetLog.formatVersion to 2",
    ),
}
PRODUCE = """
import json, sys
from pyspark.sql import SparkSession
servers, file = sys.argv[1:]
jvm = SparkSession.builder.getOrCreate()._jvm
settings = jvm.java.util.Properties()
settings.put("bootstrap.servers", servers)
settings.put("transactional.id", "production")
for part in ("key", "value"):
    settings.put(f"{part}.serializer", "org.apache.kafka.common.serialization.StringSerializer")
producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)
producer.initTransactions()
producer.beginTransaction()
producer_record = jvm.org.apache.kafka.clients.producer.ProducerRecord
for line in open(file):
    record = json.loads(line)
    key = None if record["key"] is None else str(record["key"])
    producer.send(producer_record(
        record["topic"], record["partition"], record.get("time"), key, record["value"]))
producer.commitTransaction()
producer.close()
"""
"""Sends records in one transaction. Where it ends takes an offset of each partition."""
ABORT = PRODUCE.replace("producer.commit", "producer.flush()\nproducer.abort")
"""Sends them in a transaction that is aborted, which takes these offsets as well."""
TRIM = """
import sys
from pyspark.sql import SparkSession
servers, topic = sys.argv[1:]
gateway = SparkSession.builder.getOrCreate().sparkContext._gateway
jvm = SparkSession.builder.getOrCreate()._jvm
settings = jvm.java.util.Properties()
settings.put("bootstrap.servers", servers)
admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
# Py4J does not find a static method that has the name of another one
found = [each for each in jvm.org.apache.kafka.clients.admin.RecordsToDelete._java_lang_class.getMethods()
         if each.getName() == "beforeOffset" and each.getParameterCount() == 1]
offsets = gateway.new_array(jvm.java.lang.Object, 1)
offsets[0] = 85
records = found[0].invoke(None, offsets)
places = jvm.java.util.HashMap()
places.put(jvm.org.apache.kafka.common.TopicPartition(topic, 0), records)
admin.deleteRecords(places).all().get()
admin.close()
"""
RECEIVE = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
servers, topic, directory = sys.argv[1:]
options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
records = SparkSession.builder.getOrCreate().read.format("kafka").options(**options).load()
values = [row.value for row in records.selectExpr("CAST(value AS STRING) value").collect()]
rows = [{"at": json.loads(value)["at"][:19].replace("T", " "), "value": value} for value in values]
Path(directory).mkdir(parents=True)
Path(directory, "0.json").write_text("\\n".join(map(json.dumps, rows)))
"""
CREATE_TOPICS = """
import json, sys
from pyspark.sql import SparkSession
servers, *topics = sys.argv[1:]
jvm = SparkSession.builder.getOrCreate()._jvm
settings = jvm.java.util.Properties()
settings.put("bootstrap.servers", servers)
admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
wanted = jvm.java.util.ArrayList()
for topic, partitions, given in zip(topics[::3], topics[1::3], topics[2::3]):
    one = jvm.java.util.Optional
    new = jvm.org.apache.kafka.clients.admin.NewTopic(topic, one.of(int(partitions)), one.empty())
    configs = jvm.java.util.HashMap()
    for key, value in json.loads(given).items():
        configs.put(key, value)
    wanted.add(new.configs(configs))
admin.createTopics(wanted).all().get()
admin.close()
"""


def rows_of(topic: str, first: int, end: int) -> Iterator[dict[str, Any]]:
    """Rows of a topic. Each fifth one is there twice, the second time some rows later, so that
    there are such ones on both sides of the cut.
    """
    offsets: Counter[int] = Counter()
    partitions = PARTITIONS[topic]
    for number in range(end):
        source = number - 9 if number % 5 == 0 and number >= 60 else number
        # in one more partition of events there are rows since history
        grows = topic == "events" and number >= HISTORY_ROWS
        partition = number % (partitions + grows)
        row = {
            "id": source,
            "user": source // 5 % 7,
            "at": START + source * EVERY,
            "kafka_partition": partition,
            "kafka_offset": offsets[partition],
        }
        offsets[partition] += 1
        if number >= first:
            yield row


class Production:
    """A process that runs programs on Kafka."""

    def __init__(self, process: "subprocess.Popen[str]", directory: Path, broker: str):
        self._process = process
        self.directory = directory
        self.broker = broker

    def run(self, program: str, *arguments: str) -> None:
        file = self.directory / "program.py"
        file.write_text(program)
        self.run_file(file, *arguments)

    def run_file(self, file: Path, *arguments: str) -> LiveReport:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps([str(file), self.broker, *arguments]) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('{"outcome"'):
                answer = json.loads(line)
                assert answer["outcome"] == "", line
                return LiveReport.model_validate(answer["report"])
        raise AssertionError((self.directory / "production.log").read_text()[-3000:])

    def kill_once(self, condition: Callable[[], bool], file: Path, *arguments: str) -> None:
        """Runs a program, and kills its driver with the JVM once a condition holds."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([str(file), self.broker, *arguments]) + "\n")
        self._process.stdin.flush()
        kill_once(self._process, condition)

    def produce_by_time(self, first: int, end: int) -> None:
        """The same for the source without offsets, by the time of each row."""
        file = self.directory / f"timed-{first}.json"
        by_time.write_records(file, rows_of("events", first, end))
        self.run(PRODUCE, str(file))

    def produce(self, first: int, end: int, topics: Mapping[str, str]) -> None:
        """Records of a number of rows, for topics with the rows of a source."""
        file = self.directory / f"records-{first}.json"
        lines = [
            {
                "topic": topic,
                "partition": row["kafka_partition"],
                "key": number,
                "value": json.dumps(
                    {"id": row["id"], "user": row["user"], "at": row["at"].isoformat()}
                ),
            }
            for topic, source in topics.items()
            for number, row in enumerate(rows_of(source, first, end), first)
        ]
        file.write_text("\n".join(map(json.dumps, lines)))
        self.run(PRODUCE, str(file))

    def abort(self, topics: Mapping[str, int]) -> None:
        """Records in each partition of these topics that are taken back."""
        file = self.directory / "aborted.json"
        record = {"key": None, "value": "aborted"}
        file.write_text(
            "\n".join(
                json.dumps(record | {"topic": topic, "partition": partition})
                for topic, partitions in topics.items()
                for partition in range(partitions)
            )
        )
        self.run(ABORT, str(file))


def _with_topic(source: Source, topic: str) -> Source:
    return Source.model_validate({**source.to_manifest(), "live": {"kafka": {"topic": topic}}})


@contextmanager
def production(jars: Jars, broker: str, directory: Path) -> Iterator[Production]:
    with (directory / "production.log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                Path(__file__).with_name("production_applications.py"),
                jars.for_spark,
            ],
            env=os.environ | _paths(),
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            yield Production(process, directory, broker)
        finally:
            process.kill()
            process.wait()


def _paths() -> dict[str, str]:
    places = (
        Path(__file__).parent,
        Path(__file__).parents[1] / "support",
        Path(backfill.__file__).parents[1],
    )
    return {"PYTHONPATH": os.pathsep.join(map(str, places)), "PYSPARK_PYTHON": sys.executable}


@dataclass
class History:
    """The tables that have the records of history, and their plan."""

    directory: Path
    catalog: Catalog
    jars: Jars
    broker: str
    header: PlanHeader
    spec: BackfillSpec

    @classmethod
    def of(cls, directory: Path, catalog: Catalog, jars: Jars, broker: str) -> "History":
        catalog.create_namespace("default")
        for topic in PARTITIONS:
            rows = list(rows_of(topic, 0, HISTORY_ROWS))
            table = catalog.create_table(f"default.{topic}", schema=COLUMNS)
            for start in range(0, HISTORY_ROWS, 60):
                table.append(pa.Table.from_pylist(rows[start : start + 60], schema=COLUMNS))
        timed = catalog.create_table(f"default.{by_time.SOURCE}", schema=by_time.COLUMNS)
        ingested = by_time.ingested(rows_of("events", 0, HISTORY_ROWS))
        timed.append(pa.Table.from_pylist(ingested, schema=by_time.COLUMNS))
        for name, schema in OUTPUTS.items():
            catalog.create_table(f"default.{name}", schema=schema)
        spec = BackfillSpec.model_validate(
            {
                "applicationRef": {"name": "app"},
                "window": {"start": START, "end": "Live"},
                "sources": [
                    {
                        "name": topic,
                        "table": f"lake.default.{topic}",
                        "timestampColumn": "at",
                        "kafka": {
                            "partitionColumn": "kafka_partition",
                            "offsetColumn": "kafka_offset",
                        }
                        if topic in PARTITIONS
                        else {},
                        "live": {"kafka": {"topic": topic}},
                    }
                    for topic in (*PARTITIONS, by_time.SOURCE)
                ],
                "handOff": {"to": "Live", "startingTimestampMargin": by_time.MARGIN},
                "ordering": {"policy": "WithinLateness", "allowedLateness": "2m"},
                "maxMisalignment": "60m",
            }
        )
        header = make_plan(spec, Workspace(str(directory / "workspace")), parallelism=1)
        return cls(directory, catalog, jars, broker, header, spec)

    def settings(
        self,
        name: str,
        program: str,
        outputs: tuple[str, ...],
        partitions: int | None,
        *,
        uid: str = "first",
    ) -> RuntimeSettings:
        home = self.directory / name
        (home / "channel").mkdir(parents=True)
        main_file = home / "app.py"
        main_file.write_text(PREAMBLE + program)
        shutil.copy(Path(__file__).with_name("json_lines_sink.py"), home)
        used = [
            _with_topic(source, topic)
            for source in self.spec.sources
            for topic in (source.name, *OTHER_TOPICS.get(source.name, ()))
            if f'"{topic}")' in program
        ]
        settings = RuntimeSettings(
            backfill=name,
            namespace="default",
            uid=uid,
            attempt=1,
            plan_id=self.header.plan_id,
            plan=plan_directory(
                Workspace(str(self.directory / "workspace")), self.header.inputs.own_id()
            ).uri,
            checkpoints=str(home / "checkpoints"),
            channel=str(home / "channel"),
            window=self.spec.window,
            sources=tuple(used),
            outputs=[
                {
                    "name": output,
                    "table": f"lake.default.{output}",
                    "timestampColumn": TIMES[output],
                }
                for output in outputs
            ],
            hand_off=HandOffSettings(
                state_partitions=partitions, starting_timestamp_margin=by_time.MARGIN
            ),
            main_file=str(main_file),
            arguments=(self.broker, str(home / "live")),
            spark_conf=ON_A_FEW_ROWS
            | {
                "spark.master": "local[2,4]",
                "spark.sql.shuffle.partitions": str(HISTORY_PARTITIONS),
                "spark.jars": self.jars.for_spark,
            },
            spark_defaults={"spark.sql.session.timeZone": "UTC"},
        )
        assign(settings, self.header, self.header.steps)
        return settings

    def result(self, backfill: str, output: str) -> list[dict[str, Any]]:
        table = self.catalog.load_table(f"default.{output}")
        snapshot = table.snapshot_by_name(f"backfill/{backfill}")
        return (
            []
            if snapshot is None
            else table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
        )


@pytest.mark.timeout(2700)  # many programs with a broker: seven minutes if nothing else runs
def test_history_and_the_live_application_give_what_an_uninterrupted_run_gives(
    tmp_path: Path, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in _paths().items():
        monkeypatch.setenv(key, value)
    jars = find_jars()
    with kafka_broker(jars, tmp_path) as broker, production(jars, broker, tmp_path) as live:
        four = ("trimmed", "younger", by_time.SOURCE, by_time.REMOVED)
        sent = [f"{output}-{sender}" for output in SENT_OUTPUTS for sender in SENDERS]
        topics = KAFKA_PARTITIONS | dict.fromkeys(four, 4) | dict.fromkeys(sent, 1)
        kept = {"retention.ms": str(RETENTION // timedelta(milliseconds=1))}
        configured = {"clicks": kept, "single": kept | {"cleanup.policy": "compact"}}
        live.run(
            CREATE_TOPICS,
            *(
                word
                for topic, partitions in topics.items()
                for word in (topic, str(partitions), json.dumps(configured.get(topic, {})))
            ),
        )
        same = ("trimmed", by_time.REMOVED)
        rows = {topic: topic for topic in PARTITIONS} | dict.fromkeys(same, "events")
        for first, end in ((0, HISTORY_ROWS), (HISTORY_ROWS, HISTORY_ROWS + LIVE_ROWS)):
            live.produce(first, end, rows)
            live.produce_by_time(first, end)
            if end == HISTORY_ROWS:
                live.abort({topic: KAFKA_PARTITIONS[topic] for topic in ("events", "clicks")})
        for topic in ("trimmed", by_time.REMOVED):
            live.run(TRIM, topic)
        history = History.of(tmp_path, lake, jars, broker)
        runs = {
            name: history.settings(f"case-{number}", *program)
            for number, (name, program) in enumerate(PROGRAMS.items())
        }

        refused = {
            name: history.settings(f"refused-{number}", *program, uid="second")
            for number, (name, (*program, _)) in enumerate(REFUSED.items())
        }
        outcomes = run_applications(tmp_path, [*runs.values(), *refused.values()])

        assert [each[0] for each in outcomes[: len(runs)]] == ["Finished"] * len(runs), outcomes
        for (name, case), outcome in zip(REFUSED.items(), outcomes[len(runs) :], strict=True):
            assert outcome[:2] == ["Failed", "UnsupportedProgram"], (name, outcome)
            assert case[-1] in outcome[2], (name, outcome)
        for settings in runs.values():
            main_file = Path(settings.main_file)
            live.run_file(main_file, str(main_file.parent / "uninterrupted"))
            reported = live.run_file(main_file, *settings.arguments[1:])
            _check_report(reported, status(settings).hand_off)
            for output in {each.name for each in settings.outputs} & SENT_OUTPUTS:
                for sender in SENDERS:
                    place = main_file.parent / sender / output
                    live.run(RECEIVE, f"{output}-{sender}", str(place))
        for settings in runs.values():
            _check_offsets(status(settings).hand_off, settings)
            if any(each.name == by_time.SOURCE for each in settings.sources):
                _check_read_twice(history, settings)
                check_rows(history, settings, but=by_time.DOUBLED)
            else:
                check_rows(history, settings)


def _check_read_twice(history: History, settings: RuntimeSettings) -> None:
    home, output = Path(settings.main_file).parent, by_time.DOUBLED
    report = status(settings).hand_off
    assert report is not None
    end = HISTORY_ROWS + LIVE_ROWS
    repeated = by_time.check_cut(
        report, rows_of("events", 0, HISTORY_ROWS), rows_of("events", HISTORY_ROWS, end)
    )
    by_time.check_counted_twice(
        rows_in(home / "uninterrupted" / output),
        history.result(settings.backfill, output),
        rows_in(home / "live" / output),
        repeated,
    )


def check_rows(history: History, settings: RuntimeSettings, *, but: str = "") -> None:
    """History and the live application have written what the uninterrupted one has, except for an
    output that may differ.
    """
    home = Path(settings.main_file).parent
    for output in (each.name for each in settings.outputs if each.name != but):
        rows = rows_in(home / "uninterrupted" / output)
        # what begins before the window, as a sliding one may, is not the backfill's to write
        expected = _multiset([row for row in rows if _text(row[TIMES[output]]) >= _text(START)])
        before = _multiset(history.result(settings.backfill, output))
        after = _multiset(rows_in(home / "live" / output))
        assert before and after, f"{settings.backfill}: rows on both sides of the cut"
        assert before + after == expected, f"{settings.backfill}: {output}"


def _check_offsets(report: HandOffReport | None, settings: RuntimeSettings) -> None:
    assert report is not None
    assert report.written
    for source in (each for each in report.sources if each.topic in PARTITIONS):
        assert source.starting_timestamp is None
        rows = Counter(
            str(row["kafka_partition"]) for row in rows_of(source.topic, 0, HISTORY_ROWS)
        )
        empty = dict.fromkeys(map(str, range(KAFKA_PARTITIONS[source.topic])), 0)
        assert source.offsets == empty | rows
        if source.topic == "clicks":
            assert source.kept_until is not None
            assert abs(source.kept_until - RETENTION - datetime.now(UTC)) < timedelta(hours=1)
        else:
            assert source.kept_until is None
    wanted = settings.hand_off.state_partitions if settings.hand_off else None
    assert {query.state_partitions for query in report.queries} == {wanted or HISTORY_PARTITIONS}


def _check_report(reported: LiveReport, handed_over: HandOffReport | None) -> None:
    """The live queries are those that were handed over, and have caught up."""
    assert handed_over is not None
    queries = {query.query_id: query for query in reported.queries}
    for query in handed_over.queries:
        live = queries[query.query_id]
        assert (live.query, live.records_behind) == (query.query, 0)
        assert live.batch > query.batch
        assert live.lag_seconds is not None
        assert live.lag_seconds < PATIENCE_SECONDS


def _multiset(rows: list[dict[str, Any]]) -> Counter[tuple[tuple[str, str], ...]]:
    return Counter(tuple(sorted((key, _text(value)) for key, value in row.items())) for row in rows)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    return str(value)
