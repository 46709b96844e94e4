"""Rows as Avro records without a header, encoded in the tasks: no connector has to be on Spark's class path."""

import io
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType


def avro_values(frame: DataFrame, rows: list[str], schema: str) -> DataFrame:
    """A frame with a further column ``value``: the columns ``rows`` of each row as an Avro record of a schema (JSON).

    Timestamps without zone are UTC. Columns that the schema does not have are left out.
    """
    json.loads(schema)
    columns = StructType([*frame.schema, StructField("value", BinaryType())])

    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = pa.array(_encoded(batch.select(rows), schema), pa.binary())
            yield pa.RecordBatch.from_arrays([*batch.columns, values], names=[*batch.schema.names, "value"])

    return frame.mapInArrow(encode, columns)


def _encoded(batch: pa.RecordBatch, schema: str) -> Iterator[bytes]:
    import fastavro

    parsed = _parsed(schema)
    for row in batch.to_pylist():
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, _in_utc(row))
        yield stream.getvalue()


@cache
def _parsed(schema: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(schema))


def _in_utc(value: Any) -> Any:
    """A value with every moment in UTC: what has no zone would be taken as local time."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    if isinstance(value, dict):
        return {name: _in_utc(each) for name, each in value.items()}
    return [_in_utc(each) for each in value] if isinstance(value, list) else value
