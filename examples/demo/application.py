"""A streaming application as a team runs it in production: every departure with the weather at its
airport.

It knows nothing of backfills. It reads two Kafka topics, joins them within the hour, and appends to
a table.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.appName("departures-weather").getOrCreate()


def topic(name: str, schema: str) -> DataFrame:
    records = spark.readStream.format("kafka").option("subscribe", name).load()
    return records.select(
        F.from_json(F.col("value").cast("string"), schema).alias("record")
    ).select("record.*")


flights = topic(
    "flights",
    "carrier string, flight int, origin string, dest string, scheduled timestamp, departure_delay"
    " double",
).withWatermark("scheduled", "15 minutes")
weather = (
    topic(
        "weather",
        "origin string, observed timestamp, wind_speed double, visibility double, precipitation"
        " double",
    )
    .withColumnRenamed("origin", "station")
    .withWatermark("observed", "15 minutes")
)

departures = flights.join(
    weather,
    F.expr(
        "origin = station AND scheduled >= observed AND scheduled < observed + INTERVAL 1 HOUR"
    ),
).select(
    "carrier", "flight", "origin", "dest", "scheduled", "departure_delay",
    "wind_speed", "visibility", "precipitation",
    F.col("departure_delay").isNull().alias("cancelled"),
)  # fmt: skip

departures.writeStream.queryName("departures").option(
    "checkpointLocation", "s3://streaming/checkpoints/departures"
).trigger(processingTime="30 seconds").toTable("lake.ops.departures")

spark.streams.awaitAnyTermination()
