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
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StructField,
    StructType,
)

from backfill.api.errors import InvalidPlanInput, Problem, first_line
from backfill.api.field_types import bare


def avro_values(frame: DataFrame, rows: list[str], schema: str) -> DataFrame:
    """Adds a column ``value`` to a frame: the columns ``rows`` of each row as an Avro record with
    this schema (JSON).

    Timestamps without a zone are in UTC. Local timestamps and dates of the schema are in UTC, too,
    whatever the session's time zone. Columns that the schema lacks are left out.

    Raises:
        InvalidPlanInput: it is not an Avro schema, or has fields that no column gives.
    """
    _check(schema)
    schema = named_as(StructType([frame.schema[name] for name in rows]), schema)
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


def named_as(row: StructType, schema: str) -> str:
    """An Avro schema whose fields have the names of columns, as far as they differ in case only.
    The encoded records are the same: names are not in them.

    Raises:
        InvalidPlanInput: no column has the name of a field, and the schema does not say what the
            field is without one, or there is a column of nearly that name.
    """
    renamed, missing = json.loads(schema), list[str]()
    _name_as(row, renamed, missing, ())
    if not missing:
        return json.dumps(renamed)
    message = f"live.kafka.value.schema has fields that no column gives: {', '.join(missing)}"
    fix = (
        "in the schema, name them as their columns, which changes no record; give fields that"
        " production's records lack as well a default"
    )
    raise InvalidPlanInput(Problem("spec.sources", message, fix))


def _name_as(kind: DataType, schema: Any, missing: list[str], path: tuple[str, ...]) -> None:
    if isinstance(schema, list):
        records = [each for each in schema if isinstance(each, dict)]
        if len(records) == 1:
            _name_as(kind, records[0], missing, path)
    elif not isinstance(schema, dict):
        pass  # a name or a primitive type
    elif not isinstance(schema["type"], str):
        _name_as(kind, schema["type"], missing, path)
    elif schema["type"] == "array" and isinstance(kind, ArrayType):
        _name_as(kind.elementType, schema["items"], missing, path)
    elif schema["type"] == "map" and isinstance(kind, MapType):
        _name_as(kind.valueType, schema["values"], missing, path)
    elif schema["type"] == "record" and isinstance(kind, StructType):
        for field in schema["fields"]:
            name = field["name"]
            same = [each for each in kind.names if each.lower() == name.lower()]
            near = [each for each in kind.names if bare(each) == bare(name)]
            if name in kind.names or len(same) == 1:
                field["name"] = name if name in kind.names else same[0]
                _name_as(kind[field["name"]].dataType, field["type"], missing, (*path, name))
            elif near or "default" not in field:
                similar = f" (similar: {', '.join(near)})" if near else ""
                missing.append(".".join((*path, name)) + similar)


def _in_utc(value: Any) -> Any:
    """A value with all moments in UTC. Without a zone they would be taken as local time, and with
    the session's they would give its day and hour if the schema has no moments.
    """
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, dict):
        return {name: _in_utc(each) for name, each in value.items()}
    return [_in_utc(each) for each in value] if isinstance(value, list) else value
