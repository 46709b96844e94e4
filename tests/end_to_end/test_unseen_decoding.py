"""A program decodes records in functions of its own, by the names that producers give the fields; a
table has them in lower case, as many engines write it.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from production import Production
from pyiceberg.catalog import Catalog

from backfill.api.conditions import ConditionType, Reason, find_condition
from histories import DAY_US, HOUR_US, MINUTE_US, UTC_TIME, times

ORDERS = pa.schema(
    [("user_id", pa.string()), ("amount", pa.float64()), ("coupon", pa.string()), ("at", UTC_TIME)]
)
BY_FUNCTION = """
import json
from datetime import datetime
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()


@F.udf("user_id string, amount double, coupon string, at timestamp")
def order(value):
    found = json.loads(value)
    at = found.get("at")
    return found.get("userId"), found.get("amount"), found.get("coupon"), at and datetime.fromisoformat(at)


records = spark.readStream.format("kafka").option("subscribe", "orders").load()
orders = records.select(order(F.col("value").cast("string")).alias("order")).select("order.*")
orders.writeStream.queryName("orders").toTable("lake.raw.orders").awaitTermination()
"""
BY_BATCH = """
import json
from datetime import datetime
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()


def write(batch, number):
    texts = batch.select(F.col("value").cast("string").alias("value"))
    def parse(frames):
        for frame in frames:
            found = frame["value"].map(json.loads)
            yield frame.assign(
                user_id=found.map(lambda each: each.get("userId")),
                amount=found.map(lambda each: each.get("amount")),
                coupon=found.map(lambda each: each.get("coupon")),
                at=found.map(lambda each: datetime.fromisoformat(each["at"])),
            )[["user_id", "amount", "coupon", "at"]]
    orders = texts.mapInPandas(parse, "user_id string, amount double, coupon string, at timestamp")
    orders.write.mode("append").saveAsTable("lake.raw.orders")


records = spark.readStream.format("kafka").option("subscribe", "orders").load().select("value")
records.writeStream.queryName("orders").foreachBatch(write).start().awaitTermination()
"""


@pytest.fixture
def production(tmp_path: Path, lake: Catalog) -> Production:
    """Four hours of records in ``lake.raw.records``. Production has the orders of the day before,
    with a user in each, and never a coupon.
    """
    arrived = [DAY_US + 24 * HOUR_US + minute * MINUTE_US for minute in range(4 * 60)]
    columns = {
        "userid": [f"u{number}" for number in range(len(arrived))],
        "amount": [1.5] * len(arrived),
        "coupon": pa.nulls(len(arrived), pa.string()),
        "at": times(arrived),
        "arrived": times(arrived),
    }
    records = pa.table(columns)
    lake.create_table("raw.records", schema=records.schema).append(records)
    earlier = {
        "user_id": columns["userid"],
        "amount": columns["amount"],
        "coupon": columns["coupon"],
        "at": times([each - 24 * HOUR_US for each in arrived]),
    }
    orders = lake.create_table("raw.orders", schema=ORDERS)
    orders.append(pa.table(earlier, schema=ORDERS))
    return Production(tmp_path, lake)


def described(production: Production, program: str, execution: str, **publish: Any) -> None:
    production.describe(
        program,
        window={"start": "2024-03-02T00:00:00Z", "end": "2024-03-02T04:00:00Z"},
        sources=[
            {
                "name": "records",
                "table": "lake.raw.records",
                "timestampColumn": "arrived",
                "live": {"kafka": {"topic": "orders"}},
            }
        ],
        maxMisalignment="2h",
        execution=execution,
        outputs=[
            {
                "name": "orders",
                "table": "lake.raw.orders",
                "timestampColumn": "at",
                "publish": {"mode": "Append", **publish},
            }
        ],
    )


@pytest.mark.parametrize(
    ("program", "execution"),
    [(BY_FUNCTION, "Batch"), (BY_BATCH, "Streaming")],
    ids=["batch jobs", "foreachBatch"],
)
def test_fields_that_a_function_does_not_find_are_not_published_as_null(
    production: Production, program: str, execution: str
) -> None:
    described(production, program, execution)
    before = production.output("raw.orders")
    assert refused(production) == (
        "spec.outputs: column user_id of lake.raw.orders is null in all"
        f" {240 if execution == 'Batch' else 60} rows of the result so far, although all of"
        " production's rows have a value: the application may decode fields that its records do not"
        " have here; set spec.sources[0].live.kafka.value.fields: {userId: userid}; or, if null is"
        " right, set publish.allowNull: [user_id] of output orders"
    )
    assert production.output("raw.orders") == before


def test_a_refused_first_step_leaves_nothing_and_is_read_again_once_null_is_allowed(
    production: Production,
) -> None:
    described(production, BY_FUNCTION, "Streaming")
    assert "{userId: userid}" in refused(production)
    assert list(production.catalog.load_table("raw.orders").refs()) == ["main"]
    described(production, BY_FUNCTION, "Streaming", allowNull=["user_id"])
    production.succeed()
    users = production.output("raw.orders")["user_id"]
    assert (len(users), users.null_count) == (480, 240)


def test_records_whose_times_are_not_found_do_not_end_as_an_empty_result(
    production: Production,
) -> None:
    described(production, BY_FUNCTION.replace('"at"', '"orderedAt"'), "Streaming")
    assert refused(production).startswith(
        "spec.outputs: column at of lake.raw.orders is null in all 60 rows of the result so far, and"
        " a row without it is not in the window: "
    )


def refused(production: Production) -> str:
    """Why a run is refused, by the condition Succeeded."""
    end = production.run()
    assert end.status == 2, f"{end.err}\n{production.driver_log()}"
    succeeded = find_condition(production.resource.status.conditions, ConditionType.SUCCEEDED)
    assert succeeded is not None
    assert succeeded.reason == Reason.INVALID_INPUT
    return succeeded.message
