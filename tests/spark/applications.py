"""Applications as people write them. Each reads the Kafka topic ``raw-events`` and writes copies of
its events.
"""

PREAMBLE = """
import argparse, sys, time
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.streaming import StreamingQueryListener

def decoded(records):
    return records.select(F.from_json(F.col("value").cast("string"), "id long, user long, at timestamp").alias("e")).select("e.*")

def kafka(spark):
    return decoded(spark.readStream.format("kafka").option("subscribe", "raw-events").load())
"""

CONFIGURED = """
import json, os
from pathlib import Path
from backfill.runtime import read_source, write_output

def configured(schema):
    sources = {
        "events": {"type": "dynamic", "selected": "live-events", "candidates": ["live-events", "old-events"]},
        "live-events": {"type": "kafka", "topic": "raw-events", "schema": schema},
        "old-events": {"type": "iceberg", "table": "lake.default.events", "max_misalignment_threshold": "15min"},
    }
    Path("sources.json").write_text(json.dumps({"sources": sources}))
    os.environ["BACKFILL_SOURCES"] = "sources.json"
    return read_source(SparkSession.builder.getOrCreate(), "events")
"""

IN_THE_SESSION = (
    "create or replace temporary view v as select 1 as a",
    "create or replace global temporary view g as select 1 as a",
    "cache table v",
    "describe table v",
    "show databases",
    "show catalogs",
    "show current schema",
    "clear cache",
    "drop view v",
    "drop view if exists v",
    "create or replace temporary function f(x int) returns int return x + 1",
    "drop temporary function f",
    "declare or replace variable x int default 1",
    "set variable x = 2",
    "drop temporary variable x",
    "set time zone 'UTC'",
)

FINISHING = {
    "functions, arguments, a temporary view and SQL": (
        """
def main(arguments):
    user = argparse.ArgumentParser()
    user.add_argument("--least", type=int, default=0)
    spark = SparkSession.builder.appName("views").getOrCreate()
    kafka(spark).createOrReplaceTempView("events")
    rows = spark.sql(f"select * from events where id >= {user.parse_args(arguments).least}")
    rows.writeStream.queryName("copies").start().awaitTermination()

if __name__ == "__main__":
    main(sys.argv[1:])
"""
    ),
    "sessions of Spark Connect": (
        """
import os
os.environ["SPARK_REMOTE"] = server = "sc://spark-connect.production:15002"
builder = SparkSession.builder.remote(server).config("spark.api.mode", "connect")
spark = builder.appName("remote").getOrCreate()
spark.registerProgressHandler(print)
rows = kafka(spark).where(F.col("id") >= SparkSession.builder.remote(server).getOrCreate().range(1).count() - 1)
rows.writeStream.queryName("copies").start().awaitTermination()
"""
    ),
    "a loop that asks whether the query is active": (
        """
query = kafka(SparkSession.builder.getOrCreate()).writeStream.format("parquet").start("/production/copies")
while query.isActive:
    time.sleep(0.1)
"""
    ),
    "a main program that returns without waiting": (
        """
kafka(SparkSession.builder.getOrCreate()).writeStream.queryName("copies").start()
"""
    ),
    "a wait with a time limit, then stop": (
        """
query = kafka(SparkSession.builder.getOrCreate()).writeStream.queryName("copies").start()
assert query.awaitTermination(0.2) is False
query.stop()
assert not query.isActive
"""
    ),
    "a function of the user, options in load, toTable": (
        """
spark = SparkSession.builder.getOrCreate()
same = F.udf(lambda value: value, "long")
records = spark.readStream.load(format="kafka", **{"subscribe": "raw-events", "kafka.bootstrap.servers": "kafka:9092"})
rows = decoded(records).withColumn("user", same("user"))
rows.writeStream.toTable("default.copies", outputMode="append", checkpointLocation="/production/x").awaitTermination()
"""
    ),
    "one topic read twice and joined": (
        """
spark = SparkSession.builder.getOrCreate()
left = kafka(spark).withWatermark("at", "1 minute")
right = kafka(spark).select(F.col("id").alias("other"), F.col("at").alias("then")).withWatermark("then", "1 minute")
rows = left.join(right, F.expr("id = other and then between at and at + interval 1 minute"))
rows.select("id", "user", "at").writeStream.queryName("copies").start().awaitTermination()
"""
    ),
    "a start that writes nothing": """
spark = SparkSession.builder.getOrCreate()
for statement in IN_THE_SESSION:
    spark.sql(statement)
spark.sql("create database if not exists default")
spark.sql("select * from {rows} where id < :most", {"most": 2}, rows=spark.range(3)).createOrReplaceTempView("few")
assert spark.table("few").cache().localCheckpoint().count() == 2
spark.table("few").write.format("noop").mode("overwrite").save()
kafka(spark).writeStream.queryName("copies").start().awaitTermination()
spark.catalog.uncacheTable("few")
spark.catalog.dropTempView("few")
""".replace("IN_THE_SESSION", repr(IN_THE_SESSION)),
    "duplicates within the watermark": (
        """
rows = kafka(SparkSession.builder.getOrCreate()).withWatermark("at", "1 minute")
rows.dropDuplicatesWithinWatermark(["id"]).writeStream.queryName("copies").start()
"""
    ),
    "a static table, by its name": (
        """
spark = SparkSession.builder.getOrCreate()
users = spark.table("default.users")
assert users.columns == ["user", "name"]
kafka(spark).join(users, "user").select("id", "user", "at").writeStream.queryName("copies").start()
"""
    ),
    "a static table in a view, cached and joined in SQL": (
        """
spark = SparkSession.builder.getOrCreate()
users = spark.read.format("iceberg").load("lake.default.users")
users.where("name <> 'Dee'").cache().createOrReplaceTempView("users")
kafka(spark).createOrReplaceTempView("events")
rows = spark.sql("select e.* from events e left join users u on e.user = u.user where u.name is not null")
rows.writeStream.queryName("copies").start().awaitTermination()
"""
    ),
    "a join of streams, with what a static table has of it": (
        """
spark = SparkSession.builder.getOrCreate()
left = kafka(spark).withWatermark("at", "1 minute")
right = kafka(spark).select(F.col("id").alias("other"), F.col("at").alias("then")).withWatermark("then", "1 minute")
rows = left.join(right, F.expr("id = other and then between at and at + interval 1 minute"))
named = rows.join(spark.table("default.users"), "user", "left")
named.select("id", "user", "at").writeStream.queryName("copies").start().awaitTermination()
"""
    ),
    "static tables in SQL": (
        """
spark = SparkSession.builder.getOrCreate()
kafka(spark).createOrReplaceTempView("events")
spark.sql("cache table default.users")
spark.sql("set table = users")
assert spark.sql("select * from default.${table}").count() == 3
spark.sql("create or replace temp view named as with u as (select * from `lake`.Default.users) select user as who from u where name is not null")
rows = spark.sql(
    "select e.id, lake.default.users.user, /* users */ e.at from events e join lake.default.users on e.user = lake.default.users.user"
    " join named on who = e.user where e.user in (select s.user from {some} s)"
    " and (select count(*) from default.users) = 3 and :text <> 'default.users'",
    {"text": "lake.default.users.user"}, some=spark.table("default.users"),
)
rows.writeStream.queryName("copies").start().awaitTermination()
"""
    ),
    "a table read as a stream": (
        """
spark = SparkSession.builder.getOrCreate()
spark.readStream.table("lake.default.events").writeStream.queryName("copies").start().awaitTermination()
"""
    ),
    "a pattern of Java's, headers that nobody uses, a temporary view read as a stream": (
        r"""
spark = SparkSession.builder.getOrCreate()
options = {"SubscribePattern": r"raw-[\p{Lower}&&[^x]]+", "includeHeaders": True}
records = spark.readStream.format("Kafka").options(**options).load()
assert records.dtypes[-1] == ("headers", "array<struct<key:string,value:binary>>"), records.dtypes
decoded(records).createOrReplaceTempView("Fresh")
spark.readStream.table("fresh").writeStream.queryName("copies").start().awaitTermination()
"""
    ),
    "a context made by hand, a listener, sys.exit": (
        """
class Listener(StreamingQueryListener):
    def onQueryStarted(self, event): pass
    def onQueryProgress(self, event): seen.append(event.progress.batchId)
    def onQueryTerminated(self, event): pass

seen = []
spark = SparkSession(SparkContext.getOrCreate(SparkConf().setMaster("local[1]").setAppName("by hand")))
spark.streams.addListener(Listener())
kafka(spark).writeStream.queryName("copies").start()
spark.streams.awaitAnyTermination()
sys.exit(0 if seen else 3)
"""
    ),
    "sources and outputs by name": (
        """
from backfill.runtime import read_source, write_output

query = write_output(read_source(SparkSession.builder.getOrCreate(), "events"), "copies")
query.awaitTermination()
"""
    ),
    "columns and types as the live source declares them": CONFIGURED
    + """
rows = configured("at timestamp, ID int, user long")
assert rows.dtypes == [("at", "timestamp"), ("ID", "int"), ("user", "bigint")], rows.dtypes
write_output(rows, "copies").awaitTermination()
""",
}

_IN_NEW_YORK = """
local = F.date_format("at", "yyyy-MM-dd HH:mm:ss")
rows = kafka(spark).withColumn("user", F.dayofmonth("at") * 100 + F.hour("at")).withColumn("at", F.to_timestamp(local))
rows.writeStream.queryName("copies").start().awaitTermination()
"""

IN_NEW_YORK = {
    "a time zone of the program's own, set in its session": """
spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "America/New_York")
"""
    + _IN_NEW_YORK,
    "its own time zone, in the SparkConf of a context made by hand, and another session": """
SparkSession.builder.getOrCreate().stop()
conf = SparkConf().setAppName("by hand").set("spark.sql.session.timeZone", "America/New_York")
first = SparkSession(SparkContext(conf=conf))
kafka(first)
spark = first.newSession()
"""
    + _IN_NEW_YORK,
}
"""Programs whose days and hours are those of New York: ``user`` says both, and ``at`` has been
local text in between.
"""

FINAL_ROWS = {
    "update mode": """
kafka(SparkSession.builder.getOrCreate()).writeStream.queryName("copies").outputMode("update").start()
"""
}
"""Programs in output modes of which batch jobs write the final rows."""

IN_TURN = """
spark = SparkSession.builder.getOrCreate()
first = kafka(spark).writeStream.queryName("copies").trigger(availableNow=True).start()
assert first.isActive and spark.streams.active == [first]
first.awaitTermination()
assert not first.isActive and not spark.streams.active
counts = kafka(spark).withWatermark("at", "1 minute").groupBy(F.window("at", "10 minutes"), "user").count()
counts = counts.select(F.col("window.start").alias("start"), "user", F.col("count").alias("n"))
second = counts.writeStream.queryName("counts").trigger(once=True).start()
spark.streams.awaitAnyTermination()
assert not second.isActive
"""
"""A program that starts a query once the one before has ended, each for an output of its own."""

SIDE_QUERIES = {
    "queries that are left out": (
        """
def alerts(batch, number):
    raise AssertionError

spark = SparkSession.builder.getOrCreate()
alarms = spark.readStream.format("kafka").option("subscribe", "a-topic-without-a-source").load()
records = kafka(spark).select(F.to_json(F.struct("*")).alias("value"))
left_out = [
    alarms.groupBy("key").count().writeStream.outputMode("complete").queryName("alerts").foreachBatch(print).start(),
    records.writeStream.format("kafka").option("topic", "alerts").start(),
    kafka(spark).writeStream.format("console").start(),
    kafka(spark).writeStream.format("memory").queryName("peek").start(),
    kafka(spark).writeStream.foreachBatch(alerts).start(),
]
assert [query.name for query in left_out] == ["alerts", None, None, "peek", "alerts"]
assert all(query.isActive and query.lastProgress is None and query.exception() is None for query in left_out)
assert spark.sql("select id from peek").count() == 0
spark.range(1).write.mode("overwrite").saveAsTable("production.alerts")
assert spark.sql("insert overwrite alerts values (1)").count() == 0
left_out[0].stop()
assert [query.isActive for query in left_out] == [False, True, True, True, True]
main = kafka(spark).writeStream.format("parquet").start("/production/copies")
assert {query.id for query in spark.streams.active} == {main.id, *(query.id for query in left_out[1:])}
assert spark.streams.get(left_out[2].id) is left_out[2]
left_out[3].awaitTermination()
"""
    ),
}
"""Programs that are run with ``alerts`` among their ignored queries."""

_BESIDE = """
import threading

spark = SparkSession.builder.getOrCreate()
begun, done = threading.Event(), threading.Event()

def work_too():
    begun.wait()
    try:
        {}
    finally:
        done.set()

def each(batch, number):
    begun.set()
    done.wait()

threading.Thread(target=work_too).start()
kafka(spark).writeStream.foreachBatch(each).start()
"""

_EACH = """
spark = SparkSession.builder.getOrCreate()

def each(batch, number):
    {}

kafka(spark).writeStream.queryName("each").foreachBatch(each).start().awaitTermination()
"""

_CALLED = (
    """
import datetime
from backfill.runtime.switching import batch_function, stream_writer

class CalledAtOnce(batch_function.BatchFunction):
    def __init__(self, *given, **how):
        stream_writer.BatchFunction = batch_function.BatchFunction
        super().__init__(*given, **how)
        # a query has a session of its own
        own = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        rows = [(1, 1, datetime.datetime(2021, 7, 11))]
        self(own.createDataFrame(rows, "id long, user long, at timestamp"), 0)

stream_writer.BatchFunction = CalledAtOnce
"""
    + _EACH
)
"""The function is called with one batch when its query is to be started, and there is no query."""

FUNCTIONS = {
    "a function that writes with threads, reads its batch often, and only at times": _EACH.format(
        """
    from concurrent.futures import ThreadPoolExecutor
    batch.persist()
    if number == 0:
        assert batch.count() == 60 and batch.sparkSession.sql("show tables").count() == 0
        batch.createOrReplaceTempView("updates")
        assert batch.sparkSession.sql("select count(*) from updates").collect()[0][0] == 60
        batch.write.format("noop").mode("overwrite").save()
    halves = [batch.where(f"id % 2 = {half}") for half in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda half: half.write.format("delta").mode("append").save("s3://production/copies"), halves))
    batch.unpersist()
    assert batch.limit(1).toPandas().shape[0] <= 1
    """
    ),
    "a function that keeps a pool, and does not wait for its other tasks and threads": _EACH.format(
        """
    import threading, time
    from concurrent.futures import ThreadPoolExecutor
    from multiprocessing.pool import ThreadPool
    def later(part):
        time.sleep(0.5)
        part.writeTo("copies").append()
    if number == 0:
        each.pool = ThreadPool(1)
    parts = [batch.where(f"id % 3 = {part}") for part in range(3)]
    each.pool.map(later, parts[:1])
    ThreadPoolExecutor(1).submit(later, parts[1])
    threading.Thread(target=later, args=parts[2:]).start()
    """
    ),
    "an object, which joins, logs, reads by Python and writes in parts by threads of all kinds": """
import asyncio, logging
from multiprocessing.pool import ThreadPool

class Writer:
    def __init__(self, spark):
        self.spark = spark
        users = [(user, f"name {user}") for user in range(100)]
        self.users = spark.createDataFrame(users, "user long, name string").persist()
        logging.getLogger("writer").addHandler(logging.FileHandler("writer.log"))

    def __call__(self, batch, epoch_id=None):
        if batch.isEmpty():
            return
        rows = batch.join(F.broadcast(self.users), "user").drop("name")
        rows = rows.select(F.col("at").alias("AT"), "id", "user").persist()
        logging.getLogger("writer").warning("%s rows in %s", rows.count(), epoch_id)
        read = self.spark.createDataFrame(rows.toPandas()).count(), len(list(rows.toLocalIterator()))
        seen = self.spark.sparkContext.accumulator(0)
        ids = rows.rdd.map(lambda row: (seen.add(1), row.id)[1]).distinct().count()
        assert (*read, ids, seen.value) == (60,) * 4, (read, ids, seen.value)
        parts = [rows.where(f"id % 3 = {part}") for part in range(3)]
        self.write(parts[0])
        asyncio.run(asyncio.to_thread(self.write, parts[1]))
        with ThreadPool(1) as pool:
            pool.map(self.write, parts[2:])
        rows.unpersist()

    def write(self, rows):
        writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
        writer.partitionBy("user").bucketBy(2, "id").sortBy("id").saveAsTable("copies")

spark = SparkSession.builder.getOrCreate()
kafka(spark).writeStream.foreachBatch(Writer(spark)).trigger(availableNow=True).start()
""",
    "a bound method, while another thread is connected to something": """
import functools, socket

class Writer:
    def write(self, batch, number, table):
        writer = batch.writeTo(table).using("iceberg").option("check-nullability", "false")
        writer.options(**{"fanout-enabled": "true", "compression-codec": None}).append()

query = kafka(SparkSession.builder.getOrCreate()).writeStream
query = query.foreachBatch(functools.partial(Writer().write, table="copies")).start()
server = socket.create_server(("127.0.0.1", 0))
while query.isActive:
    socket.create_connection(server.getsockname()).close()
    server.accept()[0].close()
    time.sleep(0.01)
""",
    "a function that inserts by position": _EACH.format(
        'batch.select(batch.id.alias("a"), batch.user.alias("b"), batch["at"].alias("c"))'
        '.write.insertInto("lake.default.copies")'
    ),
    "a function that inserts with statements": _EACH.format(
        'batch.createOrReplaceTempView("v")\n'
        "    if number == 0:\n"
        '        batch.sparkSession.sql("insert into lake.default.copies select id, user, at from v")\n'
        "    else:\n"
        '        batch.sparkSession.sql("insert into copies (at, id, user) select at, id, user from v")'
    ),
    "a function that inserts with statements that have parameters, or begin with WITH": _EACH.format(
        'batch.createOrReplaceTempView("v")\n'
        "    add = batch.sparkSession.sql\n"
        '    insert = "insert into copies (at, id, user) select at, id, user from"\n'
        '    add(f"{insert} {{rows}} where id % 4 = :rest", {"rest": 0}, rows=batch.where("id >= 0"))\n'
        '    add(f"{insert} v where id % ? = ?", args=[4, 1])\n'
        '    add("with x as (select * from v where id % 4 = 2) insert into copies select id, user, at from x")\n'
        '    add("insert into copies with x as (select * from v where id % 4 = :r) table x", {"r": 3})\n'
        '    assert add("select count(*) from {rows} limit {n}", rows=batch, n=1).count() == 1\n'
        '    assert not [name for (name,) in add("show tables").select("tableName").collect() if name != "v"]'
    ),
    "a function whose statements concern only its session": _EACH.format(
        "for statement in IN_THE_SESSION:\n"
        "        batch.sparkSession.sql(statement)\n"
        '    batch.writeTo("copies").append()'
    ).replace("IN_THE_SESSION", repr(IN_THE_SESSION)),
    "a function named as the output, in update mode": """
def each(batch, number):
    batch.writeTo("spark_catalog.other.table").append()

kafka(SparkSession.builder.getOrCreate()).writeStream.queryName("copies").outputMode("update").foreachBatch(each).start()
""",
    "a function that runs while this product starts processes": """
import threading
from backfill.runtime.source import warm_up

spark = SparkSession.builder.getOrCreate()
begun, warm = threading.Event(), threading.Event()

def start_processes():
    begun.wait()
    warm_up._read_nothing(spark)
    warm.set()

def each(batch, number):
    begun.set()
    warm.wait()
    batch.writeTo("copies").append()

threading.Thread(target=start_processes, daemon=True).start()
kafka(spark).writeStream.queryName("each").foreachBatch(each).start().awaitTermination()
""",
    "a function whose other writes are left out": _EACH.format(
        'batch.write.format("jdbc").option("dbtable", "alerts").mode("append").save()\n'
        '    batch.write.jdbc("jdbc:postgresql://db/x", "public.alerts", "append", {"password": "x"})\n'
        '    batch.write.mode("append").saveAsTable("copies")'
    ),
}
"""Programs that write with a function, which is always run as a stream."""

REFUSED_EFFECTS = {
    "a write to no output": (
        'batch.write.mode("append").saveAsTable("audit")',
        "foreachBatch writes to audit (write.saveAsTable), which no output has as its table or name",
    ),
    "a write that replaces": (
        'batch.write.mode("overwrite").saveAsTable("copies")',
        "foreachBatch overwrites copies with each batch (write.saveAsTable), but the batches of its query only",
    ),
    "a write that may fail in production": (
        'batch.write.parquet("/production/copies")',
        "in a mode that fails if the table already exists",
    ),
    "partitions that are replaced": (
        'batch.writeTo("copies").overwritePartitions()',
        "foreachBatch overwrites copies with each batch (writeTo.overwritePartitions), but",
    ),
    "rows that do not fit": (
        'batch.withColumn("more", batch.id).writeTo("copies").append()',
        "the rows have a column more that table lake.default.copies does not have",
    ),
    "a merge that only inserts": (
        'batch.alias("s").mergeInto("copies", F.expr("copies.id = s.id")).whenNotMatched().insertAll().merge()',
        "foreachBatch writes to copies with mergeInto, which does something other than WHEN MATCHED",
    ),
    "a merge by an inequality": (
        'batch.alias("s").mergeInto("copies", F.expr("copies.id = s.id and s.user > copies.user"))'
        ".whenMatched().updateAll().whenNotMatched().insertAll().merge()",
        "with mergeInto, which joins by something other than equality of columns",
    ),
    "a merge by columns that are not the keys": (
        'batch.alias("s").mergeInto("copies", (F.col("copies.id") == F.col("s.id")) & F.expr("copies.user <=> s.user"))'
        ".whenMatched().updateAll().whenNotMatched().insertAll().merge()",
        (
            "foreachBatch merges into copies by id, user, but the keys of output copies are not"
            " given"
        ),
    ),
    "a statement that replaces": (
        'batch.createOrReplaceTempView("v")\n    batch.sparkSession.sql("insert overwrite copies select * from v")',
        "foreachBatch overwrites copies with each batch (spark.sql (INSERT)), but",
    ),
    "a directory for each batch": (
        'batch.write.mode("append").parquet(f"/production/copies/batch={number}")',
        "foreachBatch writes to /production/copies/batch=0 (write.parquet), the directory of a partition",
    ),
    "two places of one name": (
        'batch.writeTo("a.copies").append()\n    batch.writeTo("b.copies").append()',
        "the application writes both a.copies and b.copies",
    ),
    "a statement that inserts into no output": (
        'batch.createOrReplaceTempView("v")\n    batch.sparkSession.sql("insert into audit select * from v")',
        "foreachBatch writes to audit (spark.sql (INSERT)), which no output has as its table or name",
    ),
    "a statement that inserts twice": (
        'batch.createOrReplaceTempView("v")\n    batch.sparkSession.sql("from v insert into copies select * where id > 9 insert into audit select *")',
        "foreachBatch writes to copies with spark.sql (INSERT), which is part of another statement",
    ),
    "a statement that replaces a directory": (
        "batch.sparkSession.sql(\"insert overwrite directory '/nowhere' using parquet select 1\")",
        "foreachBatch runs an SQL statement (InsertIntoDir)",
    ),
    "a statement in a text": (
        "batch.sparkSession.sql(\"execute immediate 'create table x (a int)'\")",
        "foreachBatch runs an SQL statement (UnresolvedExecuteImmediate)",
    ),
    "a procedure": (
        "batch.sparkSession.sql(\"call lake.system.expire_snapshots('default.copies')\")",
        "foreachBatch runs an SQL statement (Call)",
    ),
    "a view that is not the session's": (
        'batch.sparkSession.sql("drop view if exists other.v")',
        "foreachBatch runs an SQL statement (DropView)",
    ),
    "a statement with parts": (
        'spark.sql("create table x as select * from {rows} where id > :least", {"least": 1}, rows=batch)',
        "foreachBatch runs an SQL statement (CreateTableAsSelect",
    ),
    "a table that is made anew": (
        'batch.writeTo("copies").using("iceberg").createOrReplace()',
        "foreachBatch overwrites copies with each batch (writeTo.createOrReplace), but",
    ),
    "a connection": (
        'import urllib.request\n    urllib.request.urlopen("http://127.0.0.1:9/alert")',
        "foreachBatch connects to 127.0.0.1:9 by urllib (urlopen), which a backfill cannot isolate",
    ),
    "a connection in a thread, whose error is caught": (
        """
    import socket, threading
    def send():
        try:
            socket.create_connection(("127.0.0.1", 9))
        except Exception:
            pass
    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    """,
        "foreachBatch connects to 127.0.0.1:9",
    ),
    "a process": (
        'import subprocess\n    subprocess.run(["true", "secret"])',
        "foreachBatch starts the process true by subprocess (run), which",
    ),
    "a process of multiprocessing": (
        'import multiprocessing\n    multiprocessing.get_context("spawn").Process(target=print).start()',
        "foreachBatch starts a process, which",
    ),
    "the JVM of the context": (
        "spark.sparkContext._jvm.java.lang.System.nanoTime()",
        "foreachBatch calls java.lang.System.nanoTime in Spark's JVM, which a backfill cannot isolate",
    ),
    "the JVM of a frame": (
        'batch._jdf.sparkSession().sql("select 1")',
        "foreachBatch calls _jdf.sparkSession in Spark's JVM, which",
    ),
    "rows that executors send": (
        "batch.foreachPartition(list)",
        "foreachBatch runs code on executors (foreachPartition), which a backfill cannot isolate",
    ),
}
"""What a function does and is refused."""

IN_STREAMS = {
    "a write to no output",
    "a statement that replaces",
    "a connection in a thread, whose error is caught",
    "the JVM of a frame",
}
"""Those that a query calls: one of each kind. How its stream ends does not depend on what is
refused.
"""

ALLOWED_EFFECTS = """
SparkSession.builder.getOrCreate().range(1).write.mode("overwrite").parquet("written")
SparkSession.builder.getOrCreate().sql("drop table if exists nothing")
""" + _EACH.format(
    """
    import socket, subprocess
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname()).close()
    subprocess.run(["true"])
    spark.sparkContext._jvm.java.lang.System.nanoTime()
    batch.foreachPartition(list)
    spark.sql("create database if not exists other")
    batch.writeTo("copies").append()
    """
)
"""A program and its function that do what a Backfill may allow."""

REFUSED_BY_SPANS = {
    "a function": (
        _EACH.format('batch.writeTo("copies").append()'),
        (
            'spec.execution: "Batch" is not possible for the query each: its function'
            " (foreachBatch) is called"
        ),
    ),
    "a count that nothing ends": (
        """
last = kafka(SparkSession.builder.getOrCreate()).groupBy("user").agg(F.max("id").alias("id"), F.max("at").alias("at"))
last.writeStream.queryName("copies").start()
""",
        'spec.execution: "Batch" is not possible for the query copies: ',
    ),
}

REFUSED = {
    "headers that the table does not have": (
        """
records = SparkSession.builder.getOrCreate().readStream.format("kafka").option("subscribe", "raw-events")
records = records.option("includeHeaders", "true").load()
decoded(records.where("exists(headers, h -> h.key = 'kind')")).writeStream.queryName("copies").start()
""",
        "spec.sources[0].kafka.headersColumn: the application uses the headers of Kafka records",
    ),
    "fields that a function decodes, and no column gives": (
        """
def each(batch, number):
    rows = batch.select(F.from_json(F.col("value").cast("string"), "id long, userName string").alias("e"))
    rows.select("e.*").writeTo("copies").append()

records = SparkSession.builder.getOrCreate().readStream.format("kafka").option("subscribe", "raw-events").load()
records.select("value").writeStream.queryName("each").foreachBatch(each).start().awaitTermination()
""",
        "spec.sources[0].live.kafka.value: the application decodes fields of raw-events that",
    ),
    "a view that is not a stream, read as one": (
        """
spark = SparkSession.builder.getOrCreate()
spark.range(3).createOrReplaceTempView("still")
try:
    spark.readStream.table("still")
except Exception as error:
    assert "is not a temp view of streaming logical plan" in str(error).lower(), error
spark.readStream.format("kafka").option("assign", '{"raw-events": [0]}').load()
""",
        "spec.sources[0].kafka.partitionColumn: the application is assigned partitions",
    ),
    "a table that Spark cannot read, and is not listed": (
        "SparkSession.builder.getOrCreate().table('lake.default.counts')",
        "add - table: lake.default.counts",
    ),
    "an Iceberg table that is not listed": (
        "SparkSession.builder.getOrCreate().read.format('iceberg').load('lake.default.counts')",
        "add - table: lake.default.counts",
    ),
    "SQL text with a table that is not listed": (
        (
            "kafka(spark := SparkSession.builder.getOrCreate()).createOrReplaceTempView('e')\n"
            "spark.sql('select e.* from e join lake.default.counts using (user)')"
        ),
        (
            "the table lake.default.counts in SQL text, which Spark cannot read by itself; add -"
            " table: lake.default.counts"
        ),
    ),
    "SQL text with a snapshot of a static table": (
        "SparkSession.builder.getOrCreate().sql('select * from default.users version as of 1')",
        "the table default.users in SQL text with a snapshot or options of its own, which Spark",
    ),
    **{
        f"in a function: {name}": (
            (_EACH if name in IN_STREAMS else _CALLED).format(does),
            words,
        )
        for name, (does, words) in REFUSED_EFFECTS.items()
    },
    "a table that the main program fills": (
        'SparkSession.builder.getOrCreate().range(1).write.mode("overwrite").saveAsTable("dim")',
        "the application writes to dim (write.saveAsTable) outside of its queries",
    ),
    "files that the main program writes when its queries have started": (
        "kafka(SparkSession.builder.getOrCreate()).writeStream.queryName('copies').start()\n"
        'SparkSession.builder.getOrCreate().range(1).write.json("s3://x/dim")',
        "the application writes to s3://x/dim (write.json) outside of its queries",
    ),
    "a merge of the main program": (
        'SparkSession.builder.getOrCreate().range(1).alias("s").mergeInto("dim", F.expr("dim.id = s.id"))'
        ".whenNotMatched().insertAll().merge()",
        "the application writes to dim (mergeInto) outside of its queries",
    ),
    "a statement of the main program": (
        "spark = SparkSession.builder.getOrCreate()\n"
        'spark.sql("insert into dim select * from {rows}", rows=spark.range(1))',
        "the application runs an SQL statement (InsertIntoStatement) outside of its queries",
    ),
    "a table of the catalog": (
        'SparkSession.builder.getOrCreate().catalog.dropTable("dim")',
        "the application calls spark.catalog.dropTable outside of its queries",
    ),
    "a statement in a thread that no function has started": (
        _BESIDE.format(
            """spark.sql("select 1").collect()
        spark.sql("insert into lake.default.counts select 1")"""
        ),
        "an SQL statement (InsertIntoStatement) is run in a thread that cannot be attributed",
    ),
    "a write in a thread that no function has started": (
        _BESIDE.format('spark.range(1).write.mode("append").saveAsTable("metrics")'),
        "a DataFrame is written in a thread that cannot be attributed to a batch",
    ),
    "a topic of queries that are left out, read by another one": (
        (
            "rows ="
            ' SparkSession.builder.getOrCreate().readStream.format("kafka").option("subscribe",'
            ' "other").load()\nrows.writeStream.queryName("copies").start()'
        ),
        "add a source with live.kafka.topic: other",
    ),
    "records for Kafka": (
        (
            'kafka(SparkSession.builder.getOrCreate()).selectExpr("to_json(struct(*)) as value")'
            '.writeStream.format("kafka").option("topic", "copies-of-events").start()'
        ),
        (
            "a query without a name, which writes to copies-of-events (kafka), produces records"
            " with key and value"
        ),
    ),
    "foreach": (
        "kafka(SparkSession.builder.getOrCreate()).writeStream.foreach(print).start()",
        ") runs the application's own code for each row, whose effects",
    ),
    "counts that never end, in update mode": (
        """
last = kafka(SparkSession.builder.getOrCreate()).groupBy("user").agg(F.max("id").alias("id"), F.max("at").alias("at"))
last.writeStream.queryName("copies").outputMode("update").start()
""",
        "list the columns that identify a row in keys of the output copies",
    ),
    "a topic that no source replaces": (
        (
            'SparkSession.builder.getOrCreate().readStream.format("kafka").option("subscribe",'
            ' "other").load()'
        ),
        "add a source with live.kafka.topic: other",
    ),
    "an error that the application catches": (
        (
            'try:\n    SparkSession.builder.getOrCreate().readStream.format("rate").load()\nexcept'
            " Exception:\n    sys.exit(0)"
        ),
        "readStream of format rate cannot be replaced",
    ),
    "files as a stream": (
        'SparkSession.builder.getOrCreate().readStream.schema("a int").json("/data")',
        "readStream of format json cannot be replaced",
    ),
    "Kafka read as a batch": (
        (
            'SparkSession.builder.getOrCreate().read.format("kafka").option("subscribe",'
            ' "raw-events").load()'
        ),
        "spark.read of format kafka",
    ),
    "two queries without names of their own": (
        (
            "rows = kafka(SparkSession.builder.getOrCreate())\n"
            'rows.writeStream.queryName("copies").start()\n'
            'rows.writeStream.toTable("lake.default.copies")'
        ),
        "two queries are named copies; set a queryName for each",
    ),
    "rows that do not fit the table": (
        (
            'kafka(SparkSession.builder.getOrCreate()).drop("id").selectExpr("*", "1 as extra")'
            '.writeStream.queryName("copies").start()'
        ),
        "extra",
    ),
    "local times of a session for a column of moments": (
        (
            "spark ="
            ' SparkSession.builder.getOrCreate()\nspark.conf.set("spark.sql.session.timeZone",'
            ' "America/New_York")\nkafka(spark).withColumn("at",'
            ' F.col("at").cast("timestamp_ntz")).writeStream.queryName("copies").start()'
        ),
        (
            "is a timestamp, but the rows have a timestamp_ntz: production converts between them in the"
            " session's time zone America/New_York"
        ),
    ),
    "a column that history does not have": (
        CONFIGURED + 'configured("id long, country string")',
        (
            "sources.events: the table lacks country, which the live source declares; its columns"
            " are id, user, at"
        ),
    ),
    "an output by a name that is not there": (
        (
            "from backfill.runtime import"
            ' write_output\nwrite_output(kafka(SparkSession.builder.getOrCreate()), "copy")'
        ),
        "the application writes the output copy, which is not listed; the outputs are copies",
    ),
    "a program that is not Python": ("rows = = kafka", "SyntaxError: invalid syntax (application_"),
    "no query at all": (
        "SparkSession.builder.getOrCreate()",
        "the program has started no streaming query that a backfill runs",
    ),
}

LOST = {
    "a thread that goes on": (
        """
import threading
from backfill.runtime.switching import batch_function
patience, batch_function.PATIENCE_SECONDS = batch_function.PATIENCE_SECONDS, 0.5
next_batch = threading.Event()
"""
        + _EACH.format(
            """
    if number == 0:
        batch_function.PATIENCE_SECONDS = patience
        each.late = threading.Thread(target=lambda: next_batch.wait() and batch.writeTo("copies").append())
        each.late.start()
    else:
        next_batch.set()
        each.late.join()
    """
        ),
        "batch 0 is committed without these rows, so the result lacks them: let the function wait for",
    ),
}
"""Programs whose result lacks rows for good."""

STOPPED_AT_ONCE = {
    "an exception in the main program": (
        'raise ValueError("out of coffee")',
        "the application failed before it started a query: ValueError: out of coffee",
    ),
}
"""Programs that fail however often they are tried."""

FAILED = {
    "an exception while a query runs": (
        (
            "query ="
            ' kafka(SparkSession.builder.getOrCreate()).writeStream.queryName("copies").start()\nint("x")'
        ),
        "ValueError: invalid literal",
    ),
    "an exit status": ("sys.exit(7)", "ended with status 7"),
}

FAILED_ON_THEIR_ROWS = {
    "a function of foreachBatch that fails": (
        _EACH.format('batch.writeTo("copies").append()\n    [][number]'),
        "IndexError: list index out of range",
    ),
    "a function of the user that fails": (
        (
            'broken = F.udf(lambda value: 1 // 0, "long")\n'
            'rows = kafka(SparkSession.builder.getOrCreate()).withColumn("user", broken("user"))\n'
            'rows.writeStream.queryName("copies").start().awaitTermination()'
        ),
        "ZeroDivisionError",
    ),
}
"""Programs that fail twice and no more, if they fail in the same way."""
