"""What is run again to measure a whole backfill: two queries, one for each source, counting by ten
minutes.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill.runtime import read_source, write_output

spark = SparkSession.builder.getOrCreate()
for source, key in (("impressions", "item_id"), ("playbacks", "user_id")):
    events = read_source(spark, source).withColumn("event_ts", F.col("event_ts").cast("timestamp"))
    counts = (
        events.withWatermark("event_ts", "10 minutes")
        .groupBy(
            F.window("event_ts", "10 minutes").alias("window"), (F.col(key) % 100).alias("part")
        )
        .count()
        .select(F.col("window.start").alias("start"), "part", "count")
    )
    write_output(counts, f"{source}_counts")
spark.streams.awaitAnyTermination()
