"""What a program decodes from records is what its producers sent, or it is refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from planned_sources import Backfill, committed, planned, wait
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from backfill.api.errors import UnsupportedProgram
from backfill.api.source import KafkaValue
from backfill.api.spec import BackfillSpec
from backfill.runtime.batch.batch_sources import Leaves
from backfill.runtime.batch.rebind_plan import rebind
from backfill.runtime.batch.straight_json import without_json
from backfill.runtime.catalyst import analyzed
from backfill.runtime.source.json_values import json_value
from backfill.runtime.source.record_fields import DecodedField, RecordFields
from backfill.runtime.spark_versions import HAS_VARIANT, schema_of_ddl
from backfill.runtime.switching.batch_function import rows_of
from backfill.runtime.switching.kafka_rows import (
    as_decoded,
    check_decoded_in_function,
    kafka_frame,
    records_of_query,
)

START = datetime(2021, 7, 11, tzinfo=UTC)
AT = datetime(2021, 7, 11, 0, 5, 0, 123456, tzinfo=UTC)
Program = Callable[[DataFrame], DataFrame]

ORDERS = pa.table(
    {
        "orderid": pa.array([7], pa.int64()),
        "customer": pa.array(
            [{"firstname": "Ann", "since": AT}],
            pa.struct([("firstname", pa.string()), ("since", pa.timestamp("us", "UTC"))]),
        ),
        "items": pa.array(
            [[{"sku": "a", "qty": 2}, {"sku": "b", "qty": 1}]],
            pa.list_(pa.struct([("sku", pa.string()), ("qty", pa.int32())])),
        ),
        "total": pa.array(["12.50"], pa.string()),
        "paid": pa.array([1], pa.int32()),
        "created": pa.array([AT], pa.timestamp("us", "UTC")),
        "local": pa.array([AT.replace(tzinfo=None)], pa.timestamp("us")),
        "town": pa.array(["Ulm"], pa.string()),
        "note": pa.array(['{"lines": [{"text": "ring"}], "by": "Bo"}'], pa.string()),
        "ingested_at": pa.array([AT], pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture
def orders(lake: Catalog, tmp_path: Path) -> Callable[..., Backfill]:
    """Plans a source of the order; arguments are fields of ``live.kafka.value``."""

    def plan(**value: object) -> Backfill:
        lake.create_table("raw.orders", schema=ORDERS.schema).append(ORDERS)
        source = {
            "name": "orders",
            "table": "lake.raw.orders",
            "timestampColumn": "ingested_at",
            "live": {"kafka": {"topic": "orders", "value": value}},
        }
        spec = {
            "applicationRef": {"name": "app"},
            "window": {"start": START, "end": START + timedelta(hours=1)},
            "sources": [source],
        }
        return planned(BackfillSpec.model_validate(spec), tmp_path)

    return plan


def parsed(schema: str, *columns: str, **options: str) -> Program:
    """A program that decodes values, and uses these columns."""

    def program(records: DataFrame) -> DataFrame:
        value = F.col("value").cast("string")
        decoded = records.select(F.from_json(value, schema, options).alias("order"))
        return decoded.select("order.*").selectExpr(*(columns or ("*",)))

    return program


def in_batch(spark: SparkSession, backfill: Backfill, program: Program) -> list[Row]:
    """What a program gives as a batch job: the same with and without the text in between."""
    frame = program(kafka_frame(spark, backfill.settings, "orders"))
    plan = analyzed(as_decoded(frame, backfill.settings)[0])
    leaves = Leaves(spark, backfill.settings)

    def leaf(source: str, topic: str | None) -> DataFrame:
        return leaves.frame(source, range(backfill.header.steps), topic)

    rows = rebind(plan, spark, leaf).collect()
    assert rebind(without_json(plan, spark), spark, leaf).collect() == rows
    return rows


def refusal(spark: SparkSession, backfill: Backfill, program: Program) -> str:
    frame = program(kafka_frame(spark, backfill.settings, "orders"))
    with pytest.raises(UnsupportedProgram) as error:
        as_decoded(frame, backfill.settings)
    return str(error.value)


GIVEN: dict[str, tuple[dict[str, object], Program, tuple[object, ...]]] = {
    "names in another case": (
        {},
        parsed(
            "orderId long, Customer struct<firstName: string>, items array<struct<SKU: string>>",
            "orderId",
            "Customer.firstName",
            "items.SKU",
        ),
        (7, "Ann", ["a", "b"]),
    ),
    "a pattern of times": (
        {},
        parsed(
            "orderid long, created timestamp, customer struct<since: timestamp>",
            "orderid",
            "created",
            "customer.since",
            timestampFormat="yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
        ),
        (7, AT.replace(microsecond=123000), AT.replace(microsecond=123000)),
    ),
    "text that the program parses": (
        {},
        parsed(
            "created string, local string",
            "to_timestamp(created, 'yyyy/MM/dd HH:mm:ss') AS created",
            "unix_timestamp(local, 'dd.MM.yyyy HH:mm') AS local",
        ),
        (AT.replace(microsecond=0), int(AT.replace(second=0, microsecond=0).timestamp())),
    ),
    "a time with a zone without one": (
        {},
        parsed("created timestamp_ntz", "created"),
        (AT.replace(tzinfo=None),),
    ),
    "times as numbers": (
        {"timestampUnit": "ms"},
        parsed(
            "created long, local double, customer struct<since: string>",
            "created",
            "local",
            "cast(customer.since as long) AS since",
        ),
        (1625961900123, 1625961900123.456, 1625961900123),
    ),
    "times in seconds with fractions": (
        {"timestampUnit": "s"},
        parsed(
            "created double, local decimal(20, 6), customer struct<since: string>",
            "created",
            "CAST(local AS string) AS local",
            "CAST(customer.since AS double) AS since",
        ),
        (1625961900.123456, "1625961900.123456", 1625961900.123456),
    ),
    "whole seconds": (
        {"timestampUnit": "s"},
        parsed("created long, local string", "created", "CAST(local AS long) AS local"),
        (1625961900, 1625961900),
    ),
    "other names, nesting and types": (
        {
            "fields": {
                "id": "orderid",
                "address.city": "town",
                "total": "total",
                "paid": "paid",
                "Memo": "note",
            }
        },
        parsed(
            "id string, address struct<city: string>, total double, paid boolean, Memo"
            " struct<lines: array<struct<text: string>>>",
            "id",
            "address.city",
            "total",
            "paid",
            "Memo.lines.text",
        ),
        ("7", "Ulm", 12.5, True, ["ring"]),
    ),
    "an envelope": (
        {"envelope": "payload.after", "absent": ["payload.before"]},
        parsed(
            "payload struct<before: struct<orderId: long>, after: struct<orderId: long>>",
            "payload.after.orderId",
            "payload.before.orderId AS earlier",
        ),
        (7, None),
    ),
    "a column in two places": (
        {
            "envelope": "payload.after",
            "fields": {"payload.before.orderId": "orderid", "payload.after.orderId": "orderid"},
        },
        parsed(
            "payload struct<before: struct<orderId: long>, after: struct<orderId: long, town:"
            " string>>",
            "payload.before.orderId",
            "payload.after.*",
        ),
        (7, 7, "Ulm"),
    ),
    "unused fields that no column has": (
        {},
        parsed("orderId long, coupon string, channel struct<id: int>", "orderId"),
        (7,),
    ),
    "fields that no record has": (
        {"absent": ["coupon"]},
        parsed("orderId long, coupon string", "orderId", "coupon"),
        (7, None),
    ),
    "paths": (
        {},
        lambda records: records.selectExpr("CAST(value AS STRING) AS v").selectExpr(
            "get_json_object(v, '$.Customer.firstName')", "get_json_object(v, '$.items[1].Sku')"
        ),
        ("Ann", "b"),
    ),
    "fields of a value without a schema": (
        {"timestampUnit": "ms"},
        lambda records: records.selectExpr(
            "parse_json(CAST(value AS STRING)) AS v",
            "try_parse_json(CAST(value AS STRING)) AS w",
        ).selectExpr(
            "variant_get(v, '$.orderId', 'bigint')",
            "CAST(w:Customer.firstName AS STRING)",
            "v:items[0].Sku::STRING",
            "try_variant_get(v, '$.created', 'bigint')",
        ),
        (7, "Ann", "a", 1625961900123),
    ),
    "text that is cleaned first": (
        {},
        lambda records: records.selectExpr("CAST(value AS STRING) AS v").selectExpr(
            "from_json(regexp_replace(ltrim(v), '[\\n\\r]', ''), 'orderId long').orderId",
            "get_json_object(coalesce(v, '{}'), '$.Town')",
            "from_json(IF(v IS NULL, '{}', v), 'Paid int').Paid",
        ),
        (7, "Ulm", 1),
    ),
    "a prefix that records have": (
        {"framing": "Confluent", "schemaId": 3},
        lambda records: records.selectExpr(
            "from_json(CAST(substring(value, 6) AS STRING), 'orderId long').orderId"
        ),
        (7,),
    ),
    "a quotation mark that some records have": (
        {},
        lambda records: (
            records.selectExpr("CAST(value AS STRING) AS v")
            .selectExpr(
                "CASE WHEN v LIKE '\"%' THEN substring(v, 2, length(v) - 2) ELSE v END AS v"
            )
            .selectExpr("get_json_object(v, '$.orderId')")
        ),
        ("7",),
    ),
    "unused fields of what is only looked for": (
        {},
        lambda records: (
            records.select(
                F.from_json(
                    F.col("value").cast("string"),
                    "orderId long, coupon string, bad string",
                    {"columnNameOfCorruptRecord": "bad"},
                ).alias("order")
            )
            .where("order IS NOT NULL AND order.bad IS NULL")
            .select("order.orderId")
        ),
        (7,),
    ),
    "seconds, as the spec says": (
        {"fields": {"at": "orderid"}},
        parsed("at timestamp", "unix_seconds(at)"),
        (7,),
    ),
    "a tuple": (
        {},
        lambda records: records.selectExpr("json_tuple(CAST(value AS STRING), 'orderId', 'Town')"),
        ("7", "Ulm"),
    ),
    "a pattern that the spec has": (
        {"timestampFormat": "yyyy-MM-dd HH:mm", "timeZone": "Europe/Berlin"},
        parsed("created string, local string, ingested_at string", "created", "local"),
        ("2021-07-11 02:05", "2021-07-11 00:05"),
    ),
    "text in text": (
        {},
        lambda records: parsed("customer string")(records).selectExpr(
            "from_json(customer, 'firstName string').firstName"
        ),
        ("Ann",),
    ),
    "items one by one": (
        {},
        lambda records: (
            parsed("items array<struct<Sku: string, qty: bigint>>")(records)
            .selectExpr("explode(items) AS item")
            .groupBy()
            .agg(F.sort_array(F.collect_list("item.Sku")), F.sum("item.qty"))
        ),
        (["a", "b"], 3),
    ),
}


@pytest.mark.parametrize("case", GIVEN)
def test_a_program_decodes_what_the_table_has(
    spark: SparkSession, orders: Callable[..., Backfill], case: str
) -> None:
    value, program, expected = GIVEN[case]
    (row,) = in_batch(spark, orders(**value), program)
    assert tuple(row) == _naive(expected)


def _naive(values: tuple[object, ...]) -> tuple[object, ...]:
    """Spark gives moments in the machine's own zone, without it."""
    return tuple(
        each.astimezone().replace(tzinfo=None)
        if isinstance(each, datetime) and each.tzinfo
        else each
        for each in values
    )


REFUSED: dict[str, tuple[dict[str, object], Program, str]] = {
    "another name": (
        {},
        parsed("order_id long, tota string, channel string"),
        "spec.sources[0].live.kafka.value: the application decodes fields of orders that"
        " lake.raw.orders does not give: order_id (bigint): no such column, similar: orderid; tota"
        " (string): no such column, similar: total; channel (string): no such column, and none is"
        " similar; set fields: {order_id: orderid, tota: total, channel: COLUMN}; or, for fields"
        " that production's records lack as well, absent: [order_id, tota, channel]",
    ),
    "times as numbers": (
        {},
        parsed("created long"),
        "created (bigint): its column has the type timestamp; set timestampUnit: ms (or s, us, ns)",
    ),
    "another type": (
        {},
        parsed("paid boolean, total double, town struct<zip: string>"),
        "paid (boolean): its column has the type int; total (double): its column has the type"
        " string; town (struct<zip:string>): its column has the type string; set fields: {paid:"
        " paid, total: total, town: town}; or, for fields that production's records lack as well,"
        " absent: [paid, total, town]",
    ),
    "a field of a struct": (
        {},
        parsed("customer struct<firstName: string, lastName: string>"),
        "customer.lastName (string): its column has no such field, but firstName, since;",
    ),
    "an envelope": (
        {},
        parsed(
            "payload struct<after: struct<orderId: long, town: string>, op: string>",
            "payload.after.*",
        ),
        "payload.after.orderId (bigint): no such column, similar: orderid; payload.after.town"
        " (string): no such column, similar: town; set envelope: payload.after",
    ),
    "a column in two places": (
        {},
        parsed(
            "payload struct<before: struct<orderId: long>, after: struct<orderId: long, town:"
            " string>>",
            "coalesce(payload.after.orderId, payload.before.orderId) AS id",
            "payload.after.town",
        ),
        "set envelope: payload.after; fields: {payload.before.orderId: orderid,"
        " payload.after.orderId: orderid}; or, for fields that production's records lack as well,"
        " absent: [payload.before.orderId]",
    ),
    "another form": (
        {},
        lambda records: records.selectExpr("from_csv(CAST(value AS STRING), 'id int') AS row"),
        "value (struct<id:int>): it is decoded as CSV, but live.kafka.value.format is json; set"
        " format: column with a column that has the unchanged values",
    ),
    "delimited text": (
        {},
        lambda records: records.selectExpr("split(CAST(value AS STRING), ',')[0] AS id"),
        "value (array<string>): it is decoded as delimited text, but live.kafka.value.format is"
        " json; set format: column",
    ),
    "a plain number": (
        {},
        lambda records: records.selectExpr("CAST(CAST(value AS STRING) AS INT) AS id"),
        "value (int): it is decoded as a number, but live.kafka.value.format is json",
    ),
    "a prefix that records do not have": (
        {},
        lambda records: records.selectExpr(
            "from_json(CAST(substring(value, 6) AS STRING), 'orderid long') AS o"
        ),
        "value (struct<orderid:bigint>): the application skips its first 5 bytes; set framing:"
        " Confluent with the schemaId of production",
    ),
    "a quotation mark that records do not have": (
        {},
        lambda records: records.selectExpr("CAST(value AS STRING) AS v").selectExpr(
            "get_json_object(substring(v, 2, length(v) - 2), '$.orderid')"
        ),
        "value (string): the application skips its first byte; set format: column",
    ),
    "a prefix that only records have": (
        {"framing": "Confluent", "schemaId": 3},
        parsed("orderid long"),
        "value (bigint): the application does not skip the 5 bytes of framing:"
        " Confluent; set framing: Plain without schemaId",
    ),
    "times from numbers": (
        {},
        parsed(
            "orderid timestamp, paid string",
            "orderid",
            "try_to_timestamp(paid, 'yyyy-MM-dd') AS paid",
        ),
        "paid (string): its column has the type int; orderid (timestamp): its column has the type"
        " bigint, which is decoded as seconds",
    ),
    "values of a map": (
        {},
        parsed("customer map<string, int>"),
        "customer.firstname (int): its column has the type string; customer.since (int): its column"
        " has the type timestamp",
    ),
    "a field of a value without a schema": (
        {},
        lambda records: records.selectExpr("parse_json(CAST(value AS STRING)):coupon::STRING"),
        "coupon (variant): no such column",
    ),
    "a path": (
        {},
        lambda records: records.selectExpr("get_json_object(CAST(value AS STRING), '$.coupon')"),
        "coupon (string): no such column",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_fields_that_no_column_has_are_refused_all_at_once_with_the_fix(
    spark: SparkSession, orders: Callable[..., Backfill], case: str
) -> None:
    value, program, message = REFUSED[case]
    assert message in refusal(spark, orders(**value), program)


@pytest.fixture
def two_topics(lake: Catalog, tmp_path: Path) -> Backfill:
    """Orders, and returns that have no town, but a reason."""
    returns = ORDERS.select(["orderid", "ingested_at"]).append_column("Reason", pa.array(["late"]))
    for name, rows in {"orders": ORDERS, "returns": returns}.items():
        lake.create_table(f"raw.{name}", schema=rows.schema).append(rows)
    sources = [
        {
            "name": name,
            "table": f"lake.raw.{name}",
            "timestampColumn": "ingested_at",
            "live": {"kafka": {"topic": name}},
        }
        for name in ("orders", "returns")
    ]
    spec = {
        "applicationRef": {"name": "app"},
        "window": {"start": START, "end": START + timedelta(hours=1)},
        "sources": sources,
    }
    return planned(BackfillSpec.model_validate(spec), tmp_path)


def test_topics_that_are_read_together_each_give_the_fields_that_they_have(
    spark: SparkSession, two_topics: Backfill
) -> None:
    def both(program: Program) -> DataFrame:
        orders, returns = (
            kafka_frame(spark, two_topics.settings, name) for name in ("orders", "returns")
        )
        return as_decoded(program(orders.union(returns)), two_topics.settings)[0]

    leaves = Leaves(spark, two_topics.settings)
    program = parsed("orderId long, Town string, reason string", "orderId", "Town", "reason")
    rows = rebind(
        analyzed(both(program)),
        spark,
        lambda source, topic: leaves.frame(source, range(two_topics.header.steps), topic),
    ).collect()
    assert sorted(map(tuple, rows), key=str) == [(7, "Ulm", None), (7, None, "late")]
    with pytest.raises(UnsupportedProgram) as error:
        both(parsed("orderId long, coupon string"))
    assert str(error.value).count("coupon (string): no such column") == 2
    with pytest.raises(UnsupportedProgram) as error:
        both(parsed("orderId long, paid boolean"))
    (problem,) = error.value.problems
    assert "paid (boolean): its column has the type int; set fields: {paid: paid}" in str(problem)


ONE_TOPIC: dict[str, Callable[[DataFrame], DataFrame]] = {
    "equal": lambda records: records.where("topic = 'orders'"),
    "listed": lambda records: records.where(F.col("topic").isin("orders") & F.expr("value > ''")),
    "by another name": lambda records: (
        records.selectExpr("value", "topic AS origin").where("'orders' = origin").drop("origin")
    ),
}


@pytest.mark.parametrize("case", ONE_TOPIC)
def test_a_field_that_only_another_topic_has_is_refused_where_the_program_reads_one_of_them(
    spark: SparkSession, two_topics: Backfill, case: str
) -> None:
    orders, returns = (
        kafka_frame(spark, two_topics.settings, name) for name in ("orders", "returns")
    )
    records = orders.union(returns)
    mine = ONE_TOPIC[case](records)
    as_decoded(parsed("orderId long, town string")(mine), two_topics.settings)
    with pytest.raises(UnsupportedProgram) as error:
        as_decoded(parsed("orderId long, reason string")(mine), two_topics.settings)
    (problem,) = error.value.problems
    assert "spec.sources[0]" in problem.field
    assert "reason (string): no such column" in str(problem)
    # others are read beside it, and give what they have
    both = parsed("orderId long, town string", "orderId", "town")(mine).union(
        parsed("orderId long, reason string", "orderId", "reason")(
            records.where("topic IN ('returns')")
        )
    )
    leaves = Leaves(spark, two_topics.settings)
    rows = rebind(
        analyzed(as_decoded(both, two_topics.settings)[0]),
        spark,
        lambda source, topic: leaves.frame(source, range(two_topics.header.steps), topic),
    ).collect()
    assert sorted(map(tuple, rows), key=str) == [(7, "Ulm"), (7, "late")]


def test_text_without_a_zone_is_not_guessed_in_a_session_of_another_zone(
    spark: SparkSession, orders: Callable[..., Backfill], in_zone: Callable[[str], None]
) -> None:
    in_zone("America/New_York")
    program = parsed("created timestamp", timestampFormat="yyyy-MM-dd HH:mm:ss")
    assert refusal(spark, orders(), program).endswith(
        "created (timestamp): its text has no zone (yyyy-MM-dd HH:mm:ss), and the session's is"
        " America/New_York; set timeZone: UTC, or the zone of production's text"
    )


def doubtful(spark: SparkSession, backfill: Backfill, program: Program) -> list[str]:
    frame = program(kafka_frame(spark, backfill.settings, "orders"))
    return as_decoded(frame, backfill.settings)[1]


WITH_TIMES = "created string, local string, customer struct<since: string>"


def test_times_that_are_passed_on_as_text_are_named_with_the_text_that_records_have(
    spark: SparkSession, orders: Callable[..., Backfill]
) -> None:
    program = parsed(WITH_TIMES, "created", "upper(local)", "customer.since AS since")
    (row,) = in_batch(spark, backfill := orders(), program)
    at, local = "2021-07-11T00:05:00.123456Z", "2021-07-11T00:05:00.123456"
    assert tuple(row) == (at, local, at)
    assert doubtful(spark, backfill, program) == [
        "of orders, the application uses the text of times, which production's records may have in"
        f" another form: customer.since (column customer.since, as {at}), created (column created,"
        f" as {at}), local (column local, as {local}); set"
        " spec.sources[0].live.kafka.value.timestampFormat to the pattern of production's records,"
        " and timeZone to their zone"
    ]


NAMED: dict[str, tuple[dict[str, object], Program, tuple[str, ...]]] = {
    "of another column": (
        {"fields": {"order.made": "created"}, "timeZone": "Europe/Berlin"},
        parsed("order struct<made: string>", "order.made"),
        ("order.made (column created, as 2021-07-11T00:05:00.123456 with the offset of",),
    ),
    "in an object that is text": (
        {},
        parsed("customer string"),
        ("customer.since (column customer.since, as",),
    ),
    "by a path": (
        {},
        lambda records: records.selectExpr("get_json_object(CAST(value AS STRING), '$.created')"),
        ("created (column created, as",),
    ),
    "of a value without a schema": (
        {},
        lambda records: records.selectExpr("parse_json(CAST(value AS STRING)):created::STRING"),
        ("created (column created, as",),
    ),
    "a pattern that the spec has": (
        {"timestampFormat": "yyyy-MM-dd HH:mm"},
        parsed(WITH_TIMES),
        (),
    ),
    "a pattern that the program has": (
        {},
        parsed(WITH_TIMES, "created", "to_timestamp(created, 'yyyy/MM/dd HH:mm:ss') AS at"),
        (),
    ),
    "text that becomes a time": (
        {},
        parsed(WITH_TIMES, "to_timestamp(created) AS at", "CAST(local AS date) AS day"),
        (),
    ),
    "text that is only looked for": (
        {},
        lambda records: (
            parsed(f"{WITH_TIMES}, town string")(records)
            .where("created IS NOT NULL")
            .select("town")
        ),
        (),
    ),
    "text that is not used": ({}, parsed(f"{WITH_TIMES}, town string", "town"), ()),
    "whole seconds": (
        {"timestampUnit": "s"},
        parsed("created long, local double", "created", "local"),
        ("of orders, times are whole seconds, without fractions: created (column created); if",),
    ),
    "numbers for a function": (
        {"timestampUnit": "s"},
        lambda records: records.selectExpr("CAST(value AS STRING) AS value"),
        ("customer.since (column customer.since), created (column created), local (column local)",),
    ),
    "milliseconds": ({"timestampUnit": "ms"}, parsed("created long", "created"), ()),
}


@pytest.mark.parametrize("case", NAMED)
def test_only_times_that_may_differ_from_productions_are_warned_of(
    spark: SparkSession, orders: Callable[..., Backfill], case: str
) -> None:
    value, program, expected = NAMED[case]
    found = doubtful(spark, orders(**value), program)
    assert len(found) == len(expected)
    assert all(part in whole for part, whole in zip(expected, found, strict=True))


def test_a_stream_decodes_what_a_batch_job_decodes(
    spark: SparkSession, orders: Callable[..., Backfill]
) -> None:
    backfill = orders()
    program = parsed(
        "orderId long, created timestamp", timestampFormat="yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
    )
    records = kafka_frame(spark, backfill.settings, "orders")
    frame, _ = as_decoded(program(records), backfill.settings)
    query = backfill.start(frame)
    backfill.release(backfill.header.steps)
    wait(lambda: committed(query) > backfill.header.steps, query)
    backfill.stop()
    expected = in_batch(spark, backfill, program)
    assert backfill.results(spark).collect() == expected
    assert tuple(expected[0]) == _naive((7, AT.replace(microsecond=123000)))


TYPES = {
    "boolean": "true",
    "tinyint": "1Y",
    "bigint": "5L",
    "double": "2.5D",
    "decimal(10,2)": "1.25BD",
    "decimal(10,0)": "cast(3 as decimal(10, 0))",
    "string": "'abc'",
    "binary": "X'616263'",
    "date": "date'2024-01-02'",
    "timestamp": "timestamp'2024-01-02 03:04:05.123456'",
    "timestamp_ntz": "timestamp_ntz'2024-01-02 03:04:05.123456'",
    "struct<a:int>": "named_struct('a', 1)",
    "array<int>": "array(1, 2)",
    "map<string,int>": "map('a', 1)",
}
DECODED = [*TYPES, "smallint", "float", "map<string,string>", "array<struct<a:int>>"]
DECODED += ["variant"] if HAS_VARIANT else []
OF_THE_ROW = {("string", each) for each in ("binary", "date", "timestamp", "timestamp_ntz")} | {
    ("string", "decimal(10,2)"),
    ("string", "decimal(10,0)"),
}
"""What text is decoded as depends on the text."""
NUMBERS = {"tinyint", "bigint", "decimal(10,0)"}
"""They are decoded as seconds, and a person knows whether they are."""


@pytest.mark.parametrize("have", TYPES)
def test_a_column_is_refused_exactly_if_it_would_be_decoded_as_null(
    spark: SparkSession, have: str
) -> None:
    frame = spark.sql(f"SELECT {TYPES[have]} AS x")
    decoded, refused = {}, set()
    for want in DECODED:
        kind: Any = schema_of_ddl(f"x {want}")
        fields = RecordFields(frame.schema, KafkaValue())
        if fields.fit([DecodedField((), kind)]):
            refused.add(want)
            fields = RecordFields(frame.schema, KafkaValue())
        value = json_value(fields.written(spark)).cast("string")
        decoded[want] = F.from_json(value, kind).getField("x").isNull().alias(want)
    (row,) = frame.select(*decoded.values()).collect()
    unsure = {want for want in DECODED if (have, want) in OF_THE_ROW}
    unsure |= {"timestamp"} if have in NUMBERS else set()
    assert refused - unsure == {want for want in DECODED if row[want]} - unsure
    assert (refused & unsure) == ({"timestamp"} if have in NUMBERS else set())


IN_FUNCTIONS: dict[str, tuple[dict[str, object], Program, str]] = {
    "the table's own names": ({}, parsed("orderid long, town string, coupon string", "town"), ""),
    "names that the spec has": ({"fields": {"orderId": "orderid"}}, parsed("orderId long"), ""),
    "units that the spec has": ({"timestampUnit": "ms"}, parsed("created long"), ""),
    "patterns that the spec has": (
        {"timestampFormat": "yyyy-MM-dd HH"},
        parsed("created timestamp", timestampFormat="yyyy-MM-dd HH"),
        "",
    ),
    "another case": (
        {},
        parsed("orderId long"),
        "orderId (bigint): a function decodes it, and its column is orderid; set fields: {orderId:"
        " orderid}",
    ),
    "another pattern": (
        {},
        parsed("created timestamp", timestampFormat="yyyy-MM-dd HH"),
        "created (timestamp): a function decodes it, in another text or type; set timestampFormat:"
        " yyyy-MM-dd HH",
    ),
    "a time, where the spec has numbers": (
        {"timestampUnit": "ms"},
        parsed("created timestamp"),
        "created (timestamp): a function decodes it, but timestampUnit makes it a number in records"
        "; set timestampFormat instead of timestampUnit",
    ),
    "a number, where the spec has text": (
        {"timestampUnit": "ms", "timestampFormat": "yyyy-MM-dd HH"},
        parsed("created long"),
        "created (bigint): a function decodes it, but timestampFormat makes it text in records; set"
        " timestampUnit instead of timestampFormat",
    ),
    "another type, whatever the spec has": (
        {"fields": {"paid": "paid"}},
        parsed("paid boolean"),
        "paid (boolean): its column has the type int, which is converted only for what is decoded"
        " before foreachBatch; set absent: [paid], if it may be null",
    ),
    "no column": ({}, parsed("coupon string"), "coupon (string): no such column"),
}


@pytest.mark.parametrize("case", IN_FUNCTIONS)
def test_what_a_function_decodes_of_a_batch_is_what_the_records_have(
    spark: SparkSession, orders: Callable[..., Backfill], case: str
) -> None:
    value, program, message = IN_FUNCTIONS[case]
    backfill = orders(**value)
    frame = kafka_frame(spark, backfill.settings, "orders").selectExpr(
        "topic", "CAST(value AS STRING) AS text"
    )
    records = records_of_query(frame)
    assert records == {1: ("orders",)}
    rows = frame_of_batch(frame)
    written = program(rows.selectExpr("text AS value").where("topic = 'orders'"))
    if not message:
        check_decoded_in_function(written, rows_of(rows), records, backfill.settings)
        return
    with pytest.raises(UnsupportedProgram) as error:
        check_decoded_in_function(written, rows_of(rows), records, backfill.settings)
    assert message in str(error.value)


def frame_of_batch(frame: DataFrame) -> DataFrame:
    """A batch of a query, as Spark gives it to a function of ``foreachBatch``."""
    spark = frame.sparkSession
    rows = spark.createDataFrame([("orders", "{}")], frame.schema)
    return DataFrame(
        spark._jsparkSession.internalCreateDataFrame(
            rows._jdf.queryExecution().toRdd(), rows._jdf.schema(), False
        ),
        spark,
    )
