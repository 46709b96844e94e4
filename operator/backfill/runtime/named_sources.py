"""Sources and outputs by name: the application uses names,
and configuration says what they are.

.. code-block:: yaml

    sources:
      impressions:
        type: dynamic
        selected: live-impressions
        candidates: [live-impressions, backfill-impressions]
      live-impressions:
        type: kafka
        topic: impressions
        options: {kafka.bootstrap.servers: "kafka:9092"}
        schema: "id long, at timestamp"
      backfill-impressions:
        type: iceberg
        table: lake.default.impressions
        max_misalignment_threshold: 15min
    outputs:
      summary:
        type: iceberg
        table: lake.default.summary
        options: {checkpointLocation: "s3://lake/checkpoints/summary"}

In production, a ``dynamic`` source is the selected candidate. In a backfill every source is history
and every output is a branch, whatever the configuration selects. It then only says which columns an
application expects.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from backfill.api.errors import BadInput, Problem

if TYPE_CHECKING:  # applications import this library, and load no more of it than they use
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAMED_FORMAT = "backfill_named"
"""Format of what is read and written in a backfill. When reading, option ``source`` is the name,
and option ``shape`` is ``rows`` or ``kafka``. What is written is the output with the query's name,
and option ``type`` is its format in production.
"""
CONFIGURATION_VARIABLE = "BACKFILL_SOURCES"
"""Environment variable with the path of the configuration file (YAML or JSON)."""
CONFIGURATION_PROPERTY = "spark.backfill.sources"
"""Spark property with that path, used if the environment variable is not set."""

_Entry = Mapping[str, Any]


def read_source(spark: SparkSession, name: str) -> DataFrame:
    """A streaming DataFrame of the source: live in production and from history in a backfill, with
    the same columns and types.

    Raises:
        BadInput: the source is not configured, or history lacks a column that the live source
            declares.
    """
    sources = _section(spark, "sources")
    if in_backfill():
        return _history(spark, name, _live_candidate(sources, name))
    entry = _selected(sources, name)
    if entry.get("type") != "kafka":
        fix = (
            "select the candidate of type kafka; history is read by running"
            " the application through a Backfill"
        )
        raise _bad(
            f"sources.{name}", f"a source of type {entry.get('type')} cannot be read live", fix
        )
    return _live_kafka(spark, name, entry)


def write_output(
    df: DataFrame,
    name: str,
    outputMode: str = "append",  # noqa: N803
    **options: Any,
) -> StreamingQuery:
    """Starts the query that writes an output; it has the output's name. ``options`` are added to
    the configured ones.

    Raises:
        BadInput: the output is not configured, or a backfill cannot write in this mode.
    """
    writer = df.writeStream.queryName(name).outputMode(outputMode)
    if in_backfill():
        known = _section(df.sparkSession, "outputs").get(name, {})
        for key, value in {**known.get("options", {}), **options}.items():
            if key.lower() == "checkpointlocation" and value:  # in any case, as in Spark
                writer = writer.option(key, value)
        return writer.format(NAMED_FORMAT).option("type", known.get("type")).start()
    entry = _entry(_section(df.sparkSession, "outputs"), "outputs", name)
    writer = writer.format(str(entry["type"])).options(**{**entry.get("options", {}), **options})
    return writer.toTable(str(entry["table"])) if "table" in entry else writer.start()


def in_backfill() -> bool:
    """Whether this driver was started by a Backfill."""
    from backfill.protocol.driver_settings import SETTINGS_VARIABLE

    return SETTINGS_VARIABLE in os.environ


def configured(spark: SparkSession, name: str) -> tuple[str | None, str | None]:
    """The table of a source's history, and its topic; None where the configuration has none.

    Raises:
        BadInput: the configuration cannot be read.
    """
    sources = _section(spark, "sources")
    candidates = _candidates(sources, name)
    tables = (str(each["table"]) for each in candidates if "table" in each)
    topics = (str(each["topic"]) for each in candidates if "topic" in each)
    return next(tables, None), next(topics, None)


def _history(spark: SparkSession, name: str, live: _Entry | None) -> DataFrame:
    reader = spark.readStream.format(NAMED_FORMAT).option("source", name)
    if live is None:
        return reader.load()
    topic = {"subscribe": str(live["topic"])} if "topic" in live else {}
    reader = reader.options(**{**live.get("options", {}), **topic})
    if "schema" not in live:
        return reader.option("shape", "kafka").load()
    return _as_declared(reader.load(), str(live["schema"]), name)


def _as_declared(frame: DataFrame, schema: str, name: str) -> DataFrame:
    """The columns that the live source declares, in its order and with its types."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    from backfill.runtime.spark_versions import schema_of_ddl

    declared = schema_of_ddl(schema)
    if not isinstance(declared, StructType):
        raise _bad(
            f"sources.{name}.schema",
            f"{schema} is not a list of columns",
            "use a form such as: id long, at timestamp",
        )
    there = {column.lower() for column in frame.columns}
    missing = [field.name for field in declared if field.name.lower() not in there]
    if missing:
        message = (
            f"the table lacks {', '.join(missing)}, which the live source declares; its columns"
            f" are {', '.join(frame.columns)}"
        )
        raise _bad(
            f"sources.{name}",
            message,
            "correct the schema of the live candidate, or add the columns to the table",
        )
    return frame.select(
        [F.col(f"`{field.name}`").cast(field.dataType).alias(field.name) for field in declared]
    )


def _live_kafka(spark: SparkSession, name: str, entry: _Entry) -> DataFrame:
    from pyspark.sql import functions as F

    reader = spark.readStream.format("kafka").option("subscribe", str(entry["topic"]))
    records = reader.options(**entry.get("options", {})).load()
    if "schema" not in entry:
        return records
    form = entry.get("value", {}).get("format", "json")
    if form != "json":
        fix = "omit schema to get Kafka's own columns, and decode value in the application"
        raise _bad(
            f"sources.{name}.value.format", f"values of format {form} cannot be decoded here", fix
        )
    return records.select(
        F.from_json(F.col("value").cast("string"), str(entry["schema"])).alias("value")
    ).select("value.*")


def _selected(sources: Mapping[str, _Entry], name: str) -> _Entry:
    entry = _entry(sources, "sources", name)
    if entry.get("type") != "dynamic":
        return entry
    selected = str(entry.get("selected", ""))
    if selected not in entry.get("candidates", []):
        raise _bad(
            f"sources.{name}.selected",
            f"{selected or 'nothing'} is not one of the candidates",
            "select a candidate",
        )
    return _entry(sources, "sources", selected)


def _live_candidate(sources: Mapping[str, _Entry], name: str) -> _Entry | None:
    """The candidate that declares the columns in a backfill; None if nothing is configured, or no
    candidate is live. Of several live ones it is the selected one.
    """
    candidates = _candidates(sources, name)
    return next((candidate for candidate in candidates if candidate.get("type") == "kafka"), None)


def _candidates(sources: Mapping[str, _Entry], name: str) -> list[_Entry]:
    """What a source may be read from, the selected one first."""
    entry = sources.get(name, {})
    others = sorted(entry.get("candidates", []), key=lambda other: other != entry.get("selected"))
    return [_entry(sources, "sources", other) for other in others] or [entry]


def _entry(section: Mapping[str, _Entry], kind: str, name: str) -> _Entry:
    if name not in section:
        raise _bad(
            f"{kind}.{name}",
            "is not in the configuration",
            f"add it under {kind}; available: {', '.join(section) or 'none'}",
        )
    return section[name]


def _section(spark: SparkSession, kind: str) -> Mapping[str, _Entry]:
    """A section of the configuration. In a backfill, the whole configuration may be missing."""
    path = os.environ.get(CONFIGURATION_VARIABLE) or spark.conf.get(CONFIGURATION_PROPERTY, None)
    if not path:
        if in_backfill():
            return {}
        fix = (
            f"set the path of its file in {CONFIGURATION_VARIABLE} or in the Spark property"
            f" {CONFIGURATION_PROPERTY}"
        )
        raise _bad("", "there is no configuration of sources and outputs", fix)
    import yaml

    try:
        with open(path, "rb") as file:  # noqa: PTH123
            content = yaml.safe_load(file)
    except (OSError, yaml.YAMLError) as error:
        raise _bad(
            "",
            f"the configuration {path} cannot be read: {error}",
            "set the path of a YAML or JSON file",
        ) from None
    if not isinstance(content, Mapping):
        raise _bad(
            "", f"the configuration {path} is not a mapping", "add the keys sources and outputs"
        )
    section = content.get(kind) or {}
    return {str(name): entry for name, entry in section.items()}


def _bad(field: str, message: str, fix: str) -> BadInput:
    return BadInput(Problem(field, message, fix))
