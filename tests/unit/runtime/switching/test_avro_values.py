"""Avro records have what the columns have, or the schema says what they have instead."""

import json

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructType

from backfill.api.errors import InvalidPlanInput
from backfill.runtime.switching.avro_values import named_as

ROW = (
    StructType()
    .add("orderid", LongType())
    .add("customer", StructType().add("firstname", StringType()))
    .add("items", ArrayType(StructType().add("sku", StringType())))
    .add("user_id", LongType())
    .add("at", LongType())
    .add("AT", LongType())
)


def record(name: str, *fields: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: object, **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


def test_fields_whose_columns_are_in_another_case_are_not_null() -> None:
    schema = record(
        "Order",
        field("orderId", ["null", "long"], default=None),
        field("Customer", ["null", record("Customer", field("firstName", "string"))]),
        field("items", {"type": "array", "items": record("Item", field("SKU", "string"))}),
        field("coupon", ["null", "string"], default=None),
        field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    )
    named = json.loads(named_as(ROW, json.dumps(schema)))
    order, customer, items, coupon, at = named["fields"]
    names = [each["name"] for each in (order, customer, items, coupon, at)]
    assert names == ["orderid", "customer", "items", "coupon", "at"]
    assert customer["type"][1]["fields"][0]["name"] == "firstname"
    assert items["type"]["items"]["fields"][0]["name"] == "sku"


def test_fields_that_no_column_gives_are_refused_all_at_once_with_the_fix() -> None:
    schema = record(
        "Order",
        field("userId", ["null", "long"], default=None),
        field("coupon", ["null", "string"]),
        field("customer", record("Customer", field("lastName", ["null", "string"]))),
        field("At", "long"),
    )
    with pytest.raises(InvalidPlanInput) as error:
        named_as(ROW, json.dumps(schema))
    assert str(error.value) == (
        "spec.sources: live.kafka.value.schema has fields that no column gives: userId (similar:"
        " user_id), coupon, customer.lastName, At (similar: at, AT); in the schema, name them as"
        " their columns, which changes no record; give fields that production's records lack as"
        " well a default"
    )
