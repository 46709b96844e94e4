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
    "duplicates within the watermark": (
        """
rows = kafka(SparkSession.builder.getOrCreate()).withWatermark("at", "1 minute")
rows.dropDuplicatesWithinWatermark(["id"]).writeStream.queryName("copies").start()
"""
    ),
    "a table read as a stream": (
        """
spark = SparkSession.builder.getOrCreate()
spark.readStream.table("lake.default.events").writeStream.queryName("copies").start().awaitTermination()
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

SIDE_QUERIES = {
    "queries that are left out": (
        """
spark = SparkSession.builder.getOrCreate()
alarms = spark.readStream.format("kafka").option("subscribe", "a-topic-without-a-source").load()
records = kafka(spark).select(F.to_json(F.struct("*")).alias("value"))
left_out = [
    alarms.groupBy("key").count().writeStream.outputMode("complete").queryName("alerts").foreachBatch(print).start(),
    records.writeStream.format("kafka").option("topic", "alerts").start(),
    kafka(spark).writeStream.format("console").start(),
    kafka(spark).writeStream.format("memory").queryName("peek").start(),
]
assert [query.name for query in left_out] == ["alerts", None, None, "peek"]
assert all(query.isActive and query.lastProgress is None and query.exception() is None for query in left_out)
assert spark.sql("select id from peek").count() == 0
left_out[0].stop()
assert [query.isActive for query in left_out] == [False, True, True, True]
main = kafka(spark).writeStream.format("parquet").start("/production/copies")
assert {query.id for query in spark.streams.active} == {main.id, *(query.id for query in left_out[1:])}
assert spark.streams.get(left_out[2].id) is left_out[2]
left_out[3].awaitTermination()
"""
    ),
}
"""Programs that are run with ``alerts`` among their ignored queries."""

REFUSED_BY_SPANS = {
    "a count that nothing ends": (
        """
last = kafka(SparkSession.builder.getOrCreate()).groupBy("user").agg(F.max("id").alias("id"), F.max("at").alias("at"))
last.writeStream.queryName("copies").start()
""",
        'spec.execution: "Batch" cannot run the query copies: ',
    ),
}

REFUSED = {
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
            "a query without a name, which writes to copies-of-events (kafka), gives records with"
            " key and value"
        ),
    ),
    "foreachBatch": (
        (
            "kafka(SparkSession.builder.getOrCreate()).writeStream.foreachBatch(lambda rows, batch:"
            " None).start()"
        ),
        "foreachBatch runs the application's own code",
    ),
    "counts that never end, in update mode": (
        """
last = kafka(SparkSession.builder.getOrCreate()).groupBy("user").agg(F.max("id").alias("id"), F.max("at").alias("at"))
last.writeStream.queryName("copies").outputMode("update").start()
""",
        "name the columns that identify a row in keys of the output copies",
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
    "one output written twice": (
        (
            "rows = kafka(SparkSession.builder.getOrCreate())\n"
            'rows.writeStream.queryName("copies").start()\n'
            'rows.writeStream.toTable("lake.default.copies")'
        ),
        "two queries write the output copies",
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
            "is a timestamp, and the rows have a timestamp_ntz: production converts between them in the"
            " session's time zone America/New_York"
        ),
    ),
    "a column that history does not have": (
        CONFIGURED + 'configured("id long, country string")',
        (
            "sources.events: the table lacks country, which the live source declares; it has id,"
            " user, at"
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
        "no query of the application writes the output copies",
    ),
}

FAILED = {
    "an exception in the main program": (
        'raise ValueError("out of coffee")',
        "ValueError: out of coffee",
    ),
    "an exception while a query runs": (
        (
            "query ="
            ' kafka(SparkSession.builder.getOrCreate()).writeStream.queryName("copies").start()\nint("x")'
        ),
        "ValueError: invalid literal",
    ),
    "a function of the user that fails": (
        (
            'broken = F.udf(lambda value: 1 // 0, "long")\n'
            'rows = kafka(SparkSession.builder.getOrCreate()).withColumn("user", broken("user"))\n'
            'rows.writeStream.queryName("copies").start().awaitTermination()'
        ),
        "ZeroDivisionError",
    ),
    "an exit status": ("sys.exit(7)", "ended with status 7"),
}
