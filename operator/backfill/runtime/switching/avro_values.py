"""Encodes rows as Avro records without a header in the tasks, so that no connector has to be on
Spark's class path.
"""

import io
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from backfill.api.errors import InvalidPlanInput, Problem, first_line


def avro_values(frame: DataFrame, rows: list[str], schema: str) -> DataFrame:
    """Adds a column ``value`` to a frame: the columns ``rows`` of each row as an Avro record with
    this schema (JSON).

    Timestamps without a zone are in UTC. Local timestamps and dates of the schema are in UTC, too,
    whatever the session's time zone. Columns that the schema lacks are left out.

    Raises:
        InvalidPlanInput: it is not an Avro schema.
    """
    _check(schema)
    columns = StructType([*frame.schema, StructField("value", BinaryType())])
    names = frame.columns

    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for given in batches:
            batch = given.rename_columns(names)
            values = pa.array(_encoded(batch.select(rows), schema), pa.binary())
            yield pa.RecordBatch.from_arrays([*batch.columns, values], names=[*names, "value"])

    # mapInArrow takes the names of columns for expressions, in which a dot leads to a field
    plain = (str(place) if set(".`") & set(name) else name for place, name in enumerate(names))
    return frame.toDF(*plain).mapInArrow(encode, columns)


def _encoded(batch: pa.RecordBatch, schema: str) -> Iterator[bytes]:
    import fastavro

    parsed = _parsed(schema)
    for row in batch.to_pylist(maps_as_pydicts="strict"):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, _in_utc(row))
        yield stream.getvalue()


@cache
def _parsed(schema: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(schema))


def _check(schema: str) -> None:
    try:
        _parsed(schema)
    except Exception as error:  # fastavro has no common class for its errors
        message = f"a live.kafka.value.schema is not a valid Avro schema: {first_line(error)}"
        fix = "copy it from production's producers or their schema registry"
        raise InvalidPlanInput(Problem("spec.sources", message, fix)) from error


def _in_utc(value: Any) -> Any:
    """A value with all moments in UTC. Without a zone they would be taken as local time, and with
    the session's they would give its day and hour if the schema has no moments.
    """
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, dict):
        return {name: _in_utc(each) for name, each in value.items()}
    return [_in_utc(each) for each in value] if isinstance(value, list) else value
