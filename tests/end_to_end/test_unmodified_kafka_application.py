"""An application that knows only Kafka: three topics with values of three kinds, two queries,
state, Strict order, and wrong rows in production that are replaced: at once where all results
closed, else when a person has approved.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from production import Production, ended
from pyiceberg.catalog import Catalog

from histories import (
    DAY_US,
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    UTC_TIME,
    land,
    query,
    sorted_rows,
    times,
)

WINDOW_START = DAY_US + 2 * HOUR_US
AVRO = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "order", "type": "long"},
        {"name": "cents", "type": ["null", "long"]},
        {"name": "paid", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
APPLICATION = (
    f"AVRO = {json.dumps(json.dumps(AVRO))}\n"
    + """
import io, json
import fastavro
import pandas as pd
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

DELTA = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.extraListeners": "com.example.Lineage",
}
spark = SparkSession.builder.appName("orders").config(map=DELTA).getOrCreate()
spark.sql("CREATE DATABASE IF NOT EXISTS lake.raw")
spark.sql("CREATE TABLE IF NOT EXISTS lake.raw.paid_orders (order long) USING iceberg")
if not spark.catalog.tableExists("lake.raw.followed"):
    spark.sql("CREATE TABLE lake.raw.followed (partition int) USING iceberg")


def records(topic):
    options = {"kafka.bootstrap.servers": "kafka:9092", "subscribe": topic, "startingOffsets": "latest"}
    return spark.readStream.format("kafka").options(**options).load()


@F.udf("order long, cents long, paid timestamp")
def payment(value):
    read = fastavro.schemaless_reader(io.BytesIO(value), json.loads(AVRO))
    return read["order"], read["cents"], read["paid"]


# as producers write it; the table's columns are in lower case, and its times have another text
ORDER = "order long, Customer string, ordered timestamp, tags array<string>"
TEXT = {"timestampFormat": "yyyy/MM/dd HH:mm:ss.SSSSSS"}
orders = (
    records("shop.orders")
    .withColumn("o", F.from_json(F.col("value").cast("string"), ORDER, TEXT))
    .withColumn("key", F.col("key").cast("string"))
    .select("o.*", "key", "partition", "offset", "timestamp", "topic", "timestampType")
    .withWatermark("ordered", "5 minutes")
)
payments = records("shop.payments").select(payment("value").alias("p")).select(
    F.col("p.order").alias("paid_order"), F.col("p.cents").alias("cents"), F.col("p.paid").alias("paid")
).withWatermark("paid", "5 minutes")
joined = orders.join(
    payments, F.expr("order = paid_order and paid >= ordered and paid < ordered + interval 20 minutes"), "leftOuter"
).select("order", "customer", "ordered", F.try_element_at("tags", F.lit(1)).alias("tag"), "cents", "key", "partition", "offset",
         F.expr("timestamp = ordered and topic = 'shop.orders' and timestampType = 0").alias("as_kafka"))
(joined.writeStream.queryName("paid_orders").format("delta").outputMode("append").trigger(processingTime="1 minute")
    .option("checkpointLocation", "s3://production/checkpoints/paid").toTable("lake.raw.paid_orders"))


def follow(key, frames, state):
    last, seen, disordered = state.get if state.exists else (-1, 0, 0)
    for frame in frames:
        for offset in frame["offset"]:
            disordered += int(offset <= last)
            last, seen = int(offset), seen + 1
    state.update((last, seen, disordered))
    row = {"partition": key[0], "at": pd.Timestamp("2024-03-01 03:00"), "last": last, "seen": seen, "disordered": disordered}
    yield pd.DataFrame([row])


followed = records("shop.clicks").select("partition", "offset").groupBy("partition")
states = followed.applyInPandasWithState(
    follow, "partition int, at timestamp, last long, seen long, disordered long", "last long, seen long, disordered long",
    "append", GroupStateTimeout.NoTimeout,
)
states.writeStream.format("iceberg").trigger(availableNow=True).start("lake.raw.followed")
spark.streams.awaitAnyTermination()
"""
)
OUTER_JOIN = """
    SELECT o.order, customer, ordered, tags[1] AS tag, cents, o.key, o.kafka_partition AS partition, o.kafka_offset AS "offset",
        true AS as_kafka
    FROM orders o LEFT JOIN payments p ON o.order = p.order AND paid >= ordered AND paid < ordered + INTERVAL 20 MINUTE
    WHERE ordered >= TIMESTAMPTZ '2024-03-01 02:00Z' AND ordered < TIMESTAMPTZ '2024-03-01 06:00Z'
"""


def in_kafka(columns: dict[str, pa.Array], arrived: np.ndarray, seed: int) -> pa.Table:
    """Adds partition and offset; within a partition offsets do not quite follow arrival times."""
    random = np.random.default_rng(seed)
    partition = random.integers(0, 3, len(arrived))
    appended = arrived + random.integers(0, 3 * SECOND_US, len(arrived))
    offset = np.empty(len(arrived), dtype="int64")
    for number in range(3):
        mine = np.flatnonzero(partition == number)
        offset[mine[np.argsort(appended[mine], kind="stable")]] = np.arange(len(mine))
    made = {
        "kafka_partition": pa.array(partition.astype("int32")),
        "kafka_offset": pa.array(offset),
        "ingested": times(arrived),
    }
    return pa.table({**columns, **made})


def wrong_rows(right: pa.Table) -> pa.Table:
    """Half of the right results with amounts that are wrong, and one from before the window that is
    nobody's business.
    """
    wrong = right.slice(0, right.num_rows // 2)
    wrong = wrong.set_column(
        right.schema.get_field_index("cents"), "cents", pc.add(pc.fill_null(wrong["cents"], 0), 1)
    )
    earlier = wrong.slice(0, 1)
    moved = pa.chunked_array([pa.array([WINDOW_START - MINUTE_US], UTC_TIME)])
    return pa.concat_tables(
        [wrong, earlier.set_column(right.schema.get_field_index("ordered"), "ordered", moved)]
    )


def test_topics_of_three_kinds_come_as_kafka_would_give_them_and_in_offset_order(
    lake: Catalog, tmp_path: Path
) -> None:
    random = np.random.default_rng(5)
    ordered = np.sort(random.integers(DAY_US, DAY_US + 8 * HOUR_US, 1_500))
    paying = random.random(len(ordered)) < 0.8
    paid = ordered[paying] + random.integers(0, 25 * MINUTE_US, paying.sum())
    order = pa.array(np.arange(len(ordered)))
    orders = in_kafka(
        {
            "order": order,
            "customer": pa.array([f'Zoë "{n % 7}" \\ \n€' for n in range(len(ordered))]),
            "ordered": times(ordered),
            "tags": pa.array(
                [[f"t{n % 3}", None] if n % 4 else [] for n in range(len(ordered))],
                pa.list_(pa.string()),
            ),
            "key": pa.array([f"k{n}" if n % 5 else None for n in range(len(ordered))]),
        },
        ordered + 7,
        seed=1,
    )
    payments = in_kafka(
        {
            "order": order.filter(pa.array(paying)),
            "cents": pa.array([int(n) if n % 9 else None for n in range(len(paid))], pa.int64()),
            "paid": times(paid),
        },
        paid + 11,
        seed=2,
    )
    clicked = np.sort(random.integers(DAY_US, DAY_US + 8 * HOUR_US, 900))
    clicks = in_kafka(
        {"page": pa.array([f"/{n}".encode() for n in range(len(clicked))])}, clicked, seed=3
    )
    tables = {"orders": orders, "payments": payments, "clicks": clicks}
    for seed, (name, rows) in enumerate(tables.items()):
        arrived = rows["ingested"].cast(pa.int64()).to_numpy()
        land(
            lake.create_table(f"raw.{name}", rows.schema),
            rows,
            arrived,
            files=6,
            seed=seed,
            straggle_us=2 * MINUTE_US,
        )
    paid_orders = query(OUTER_JOIN, orders=orders, payments=payments)
    in_production = wrong_rows(paid_orders)
    lake.create_table("raw.paid_orders", paid_orders.schema).append(in_production)
    followed = {
        "partition": pa.int32(),
        "at": UTC_TIME,
        "last": pa.int64(),
        "seen": pa.int64(),
        "disordered": pa.int64(),
    }
    lake.create_table("raw.followed", pa.schema(followed))

    avro, column = (
        {"format": "avro", "schema": json.dumps(AVRO)},
        {
            "format": "column",
            "column": "page",
        },
    )
    values = {"orders": {}, "payments": avro, "clicks": column}
    kafka = {"partitionColumn": "kafka_partition", "offsetColumn": "kafka_offset"}
    production = Production(tmp_path, lake)
    production.describe(
        APPLICATION,
        window={"start": "2024-03-01T02:00:00Z", "end": "2024-03-01T06:00:00Z", "drain": "1h"},
        sources=[
            {
                "name": name,
                "table": f"lake.raw.{name}",
                "timestampColumn": "ingested",
                "kafka": (
                    kafka
                    | (
                        {"keyColumn": "key", "timestampColumn": "ordered"}
                        if name == "orders"
                        else {}
                    )
                ),
                "live": {"kafka": {"topic": f"shop.{name}", "value": value}},
            }
            for name, value in values.items()
        ],
        ordering={"policy": "Strict", "allowedLateness": "0s"},
        maxMisalignment="2h",
        outputs=[
            {
                "name": "orders-with-payments",
                "table": "lake.raw.paid_orders",
                "timestampColumn": "ordered",
                "publish": {"mode": "Replace", "approval": "Automatic"},
            },
            {
                "name": "followed",
                "table": "lake.raw.followed",
                "timestampColumn": "at",
                "publish": {"mode": "Replace", "approval": "Automatic"},
            },
        ],
    )
    waiting = production.run()
    assert waiting.status == 3, f"{waiting.err}\n{production.driver_log()}"
    assert "because the query keeps user-defined state (applyInPandasWithState" in waiting.err
    outputs = {output.name: output for output in production.resource.status.outputs}
    assert {name: output.open_at_end for name, output in outputs.items()} == {
        "orders-with-payments": 0,
        "followed": None,
    }
    assert outputs["orders-with-payments"].snapshot_id is not None, (
        "no result of the join was open: nobody need be asked"
    )
    assert outputs["followed"].snapshot_id is None
    assert production.output("raw.followed").num_rows == 0
    outside = in_production.filter(
        pc.less(in_production["ordered"], pa.scalar(WINDOW_START, UTC_TIME))
    )
    expected_orders = pa.concat_tables([paid_orders, outside])
    assert outside.num_rows
    assert sorted_rows(production.output("raw.paid_orders")) == sorted_rows(expected_orders)

    approved = ended(
        production.start(
            "approve", "again", "--state-dir", str(production.state), "--output", "json"
        )
    )
    assert approved.status == 0, approved.err
    assert sorted_rows(production.output("raw.paid_orders")) == sorted_rows(expected_orders)

    read = (
        "ingested >= TIMESTAMPTZ '2024-03-01 02:00Z' AND ingested < TIMESTAMPTZ '2024-03-01 07:00Z'"
    )
    followed_rows = query(
        "SELECT partition, max(last) AS last, max(seen) AS seen, max(disordered) AS disordered FROM"
        " rows GROUP BY partition",
        rows=production.output("raw.followed"),
    )
    expected = query(
        f"SELECT kafka_partition, max(kafka_offset), count(*), 0::BIGINT FROM clicks WHERE {read}"
        " GROUP BY ALL",
        clicks=clicks,
    )
    assert sorted_rows(followed_rows) == sorted_rows(expected)
    assert waiting.document["rowsDroppedLate"] == 0
    production.assert_aligned(2 * HOUR_US)
