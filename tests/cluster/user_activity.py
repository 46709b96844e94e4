"""What users do in windows, and their visits without repeats: an ordinary program with state that reads two
Kafka topics and writes two.
"""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.appName("user-activity").getOrCreate()
servers, checkpoints = os.environ["KAFKA_BROKERS"], os.environ["CHECKPOINTS"]
options = {"kafka.bootstrap.servers": servers, "startingOffsets": "latest"}


def read(topic: str) -> DataFrame:
    """The events of a topic."""
    records = spark.readStream.format("kafka").options(**options).option("subscribe", topic).load()
    event = F.from_json(F.col("value").cast("string"), "id BIGINT, user BIGINT, at TIMESTAMP")
    return records.select(event.alias("event")).select("event.*").withWatermark("at", "10 minutes")


def send(rows: DataFrame, topic: str, time: str) -> None:
    """Sends rows as JSON."""
    rows.select(time, F.to_json(F.struct("*")).alias("value")).writeStream.queryName(topic).format(
        "kafka"
    ).option("kafka.bootstrap.servers", servers).option("topic", topic).option(
        "checkpointLocation", f"{checkpoints}/{topic}"
    ).start()


counts = (
    read("activity").groupBy(F.window("at", "5 minutes"), "user").agg(F.count("*").alias("events"))
)
send(counts.select(F.col("window.start").alias("at"), "user", "events"), "counts", "at")
send(read("visits").dropDuplicates(["id", "at"]), "firsts", "at")
spark.streams.awaitAnyTermination()
