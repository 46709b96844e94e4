"""How active each user was in the last 30 days: an ordinary program with state of its own, which
reads a Kafka topic and writes another one.
"""

import argparse
import os
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

KEPT_US = 30 * 86_400_000_000
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Profile(StatefulProcessor):
    """Counts the events of a user, in the order in which they were sent."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Keeps the times of events, in microseconds."""
        self._times = handle.getListState("times", "us BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """A new profile for each event."""
        times = [us for (us,) in self._times.get()]
        for row in sorted(rows, key=lambda each: each.offset):
            times = [*(us for us in times if us > row.us - KEPT_US), row.us]
            yield Row(user=key[0], us=row.us, events=len(times))
        self._times.put([(us,) for us in times])

    def close(self) -> None:
        """Nothing is open."""


parser = argparse.ArgumentParser()
parser.add_argument("--checkpoints", required=True)
checkpoints = parser.parse_args().checkpoints
servers = os.environ["KAFKA_BROKERS"]
spark = (
    SparkSession.builder.appName("user-profiles")
    .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    .getOrCreate()
)
records = (
    spark.readStream.format("kafka")
    .options(**{"kafka.bootstrap.servers": servers, "startingOffsets": "latest"})
    .option("subscribe", "activity")
    .load()
)
event = F.from_json(F.col("value").cast("string"), "at TIMESTAMP")
events = records.select(
    F.col("key").cast("string").alias("user"), "offset", F.unix_micros(event["at"]).alias("us")
)
profiles = (
    events.groupBy("user")
    .transformWithState(Profile(), "user STRING, us BIGINT, events INT", "append", "None")
    .select("user", F.timestamp_micros("us").alias("updated_at"), "events")
)
profiles.select("updated_at", F.to_json(F.struct("*")).alias("value")).writeStream.queryName(
    "profiles"
).format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "profiles").option(
    "checkpointLocation", f"{checkpoints}/profiles"
).start()
spark.streams.awaitAnyTermination()
