"""Plays that followed an impression, by title and hour: an ordinary program that reads two Kafka
topics.
"""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.appName("hourly-plays").getOrCreate()


def topic(name: str, schema: str, time: str) -> DataFrame:
    """The events of a topic, which may come ten minutes late."""
    options = {
        "kafka.bootstrap.servers": os.environ["KAFKA_BROKERS"],
        "subscribe": name,
        "startingOffsets": "latest",
    }
    records = spark.readStream.format("kafka").options(**options).load()
    events = records.select(
        F.from_json(F.col("value").cast("string"), schema).alias("event")
    ).select("event.*")
    return events.withWatermark(time, "10 minutes")


impressions = topic("impressions", "title BIGINT, viewer BIGINT, shown TIMESTAMP", "shown")
playbacks = topic(
    "playbacks", "title BIGINT, viewer BIGINT, played TIMESTAMP, watched BIGINT", "played"
).select(F.col("title").alias("played_title"), F.col("viewer").alias("player"), "played", "watched")
joined = playbacks.join(
    impressions,
    F.expr(
        "title = played_title AND viewer = player AND shown <= played AND shown > played - INTERVAL"
        " 30 MINUTES"
    ),
)
hourly = joined.groupBy(F.window("played", "1 hour"), "title").agg(
    F.count("*").alias("plays"), F.sum("watched").alias("watched")
)
summary = hourly.select(F.col("window.start").alias("window_start"), "title", "plays", "watched")
query = (
    summary.writeStream.queryName("summary")
    .format("iceberg")
    .outputMode("append")
    .option("checkpointLocation", os.environ["CHECKPOINTS"])
    .toTable("lake.raw.summary")
)
query.awaitTermination()
