"""The row of a table as the JSON text of a Kafka record's value."""

from typing import Final

from py4j.java_gateway import JavaObject
from pyspark.sql import Column
from pyspark.sql import functions as F

from backfill.runtime.catalyst import kind_of

JSON_OPTIONS: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # the default writes only milliseconds
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How it is written. :func:`is_json_value` knows it by these."""


def json_value(record: Column) -> Column:
    """A struct as bytes of a JSON object; fields that are null are left out."""
    return F.to_json(record, JSON_OPTIONS).cast("binary")


def is_json_value(expression: JavaObject) -> bool:
    """Whether an expression writes JSON as this package does."""
    if kind_of(expression) != "StructsToJson":
        return False
    options = expression.options()
    return int(options.size()) == len(JSON_OPTIONS) and all(
        options.contains(name) and str(options.apply(name)) == value
        for name, value in JSON_OPTIONS.items()
    )
