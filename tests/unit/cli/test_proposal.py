"""Proposed Backfills: which tables stand for topics and outputs, what their columns are for, and
how much is read around the window; from what a survey of the program found.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from backfill.api.backfill import Backfill
from backfill.api.manifests.backfill_manifest import load_manifests
from backfill.api.output import Output
from backfill.api.quantities import format_duration
from backfill.api.spec import Window
from backfill.cli.proposal.manifest import manifest
from backfill.controller.proposing.find_out import Findings, propose
from backfill.controller.proposing.proposed import Proposal
from backfill.controller.proposing.proposed_outputs import with_given
from backfill.planning.lateness_sample import ArrivalLags
from backfill.protocol.explanation import ExplainedQuery
from backfill.protocol.survey_result import (
    Survey,
    SurveyedColumn,
    SurveyedInput,
    SurveyedProblem,
    SurveyedQuery,
    SurveyedWatermark,
    SurveyedWrite,
)

SECOND = 1_000_000
CLICKS = {"id": "long", "at": "timestamptz", "ingested": "timestamptz"}
HOURLY = {"began": "timestamptz", "id": "long", "count": "long"}
WINDOW = Window(start=datetime(2024, 3, 1, tzinfo=UTC), end=datetime(2024, 3, 2, tzinfo=UTC))


class Lake:
    """Tables that need no catalog."""

    def __init__(self, tables: Mapping[str, Mapping[str, str]]):
        self._tables = tables
        self.arrivals: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        return sorted(self._tables)

    def find(self, written: str) -> str | None:
        found = [name for name in self._tables if written in {name, name.partition(".")[2]}]
        return found[0] if len(found) == 1 else None

    def columns(self, name: str) -> Mapping[str, str]:
        return self._tables[name]

    def arrival_column(self, name: str) -> str | None:
        return self.arrivals.get(name)


def topic(name: str = "clicks", **fields: Any) -> SurveyedInput:
    given = {"value": "Json", "fields": {"id": "long", "at": "timestamp"}}
    return SurveyedInput.model_validate({"kind": "Topic", "name": name, **given, **fields})


def hourly(**fields: Any) -> SurveyedQuery:
    columns = (
        SurveyedColumn(name="began", type="timestamp", is_event_time=True),
        SurveyedColumn(name="id", type="bigint"),
        SurveyedColumn(name="count", type="bigint"),
    )
    watermark = SurveyedWatermark(
        column="at", delay_seconds=600, inputs=("clicks",), fields=("at",)
    )
    given: dict[str, Any] = {
        "name": "hourly",
        "columns": columns,
        "inputs": ("clicks",),
        "watermarks": (watermark,),
        "groups_by": ("window", "id"),
        "keys": ("began", "id"),
    }
    return SurveyedQuery.model_validate(given | fields)


def proposed(
    tables: Mapping[str, Mapping[str, str]],
    *queries: SurveyedQuery,
    read: SurveyedInput | None = None,
) -> Proposal:
    survey = Survey(inputs=(read or topic(),), queries=queries or (hourly(),))
    return propose(survey, Lake(tables))


TABLES = {"lake.raw.clicks": CLICKS, "lake.raw.hourly": HOURLY}


def explained(**fields: Any) -> ExplainedQuery:
    given = {"query": "hourly", "output": "hourly", "execution": "Batch", "reads": {}}
    return ExplainedQuery.model_validate(given | fields)


def lags(least: int = 0, early: int = 0, most: int = 60) -> ArrivalLags:
    return ArrivalLags(1_000, 3, 7, *(each * SECOND for each in (least, early, 2, most, 90)))


def written(
    proposal: Proposal,
    queries: tuple[ExplainedQuery, ...] | None = None,
    measured: Mapping[str, ArrivalLags] | None = None,
) -> tuple[Backfill, str]:
    """The manifest as it is read, and its text without line breaks in comments."""
    found = Findings("clicks", WINDOW, proposal, measured or {}, ())
    text = manifest("clicks-2024-03-01", None, found.spec(queries), proposal.unsolved)
    assert max(map(len, text.splitlines())) <= 100
    words = " ".join(line.strip().removeprefix("#").strip() for line in text.splitlines())
    return load_manifests(text, require_application=False).backfill, words


def test_all_that_was_found_is_in_a_manifest_without_open_questions() -> None:
    look = {"lookBackSeconds": 3_600, "lookAheadSeconds": 4_200}
    backfill, words = written(proposed(TABLES), (explained(**look),), {"clicks": lags()})
    spec = backfill.spec
    (source,), (output,) = spec.sources, spec.outputs
    assert (source.table, source.timestamp_column) == ("lake.raw.clicks", "ingested")
    assert source.live.kafka.topic == "clicks"
    assert (output.name, output.table, output.timestamp_column, output.keys) == (
        "hourly",
        "lake.raw.hourly",
        "began",
        ("began", "id"),
    )
    assert format_duration(spec.window.warm_up) == "1h"
    assert format_duration(spec.window.drain) == "1h10m"
    assert format_duration(spec.ordering.allowed_lateness) == "5m"
    assert output.publish.mode == "None"
    assert "TODO:" not in words
    assert (
        "Measured on 1,000 rows of lake.raw.clicks that arrived in the window, from 3 of 7 files"
        in words
    )
    assert "leaves 9m" in words


def test_topics_by_pattern_are_asked_for_by_name() -> None:
    topics = topic("clicks-.*", kind="Pattern")
    query = hourly(inputs=(topics.name,), watermarks=())
    backfill, words = written(proposed(TABLES, query, read=topics))
    (source,) = backfill.spec.sources
    assert (source.table, source.live.kafka.topic) == ("lake.raw.clicks", "TODO")
    assert "Reads the topics that match clicks-.*." in words
    assert "TODO: Set this to a topic that the pattern matches; add a source for each" in words
    both = TABLES | {"lake.raw.others": CLICKS}
    backfill, words = written(proposed(both, query, read=topics))
    assert backfill.spec.sources[0].table == "TODO.namespace.table"
    assert "fields that the program reads: lake.raw.clicks, lake.raw.others." in words


@pytest.mark.parametrize(
    "name",
    ["a: b #c", "line\nbreak", "\x85\u2028", "\x00\x1b\x7f", "Größe 🛫", '"quo\'ted"', "- x", " "],
)
def test_any_name_of_the_program_is_in_the_manifest_as_it_is(name: str) -> None:
    alerts = hourly(name=name, format="kafka", topic=name)
    backfill, _ = written(proposed(TABLES, hourly(), alerts))
    assert backfill.spec.ignored_queries == (name,)


def test_a_table_needs_the_name_of_the_topic_and_the_fields_that_the_program_reads() -> None:
    lacking = {**TABLES, "lake.raw.clicks": {"id": "long", "ingested": "timestamptz"}}
    backfill, words = written(proposed(lacking))
    assert backfill.spec.sources[0].table == "TODO.namespace.table"
    assert "lake.raw.clicks has a matching name, but lacks at" in words

    _, words = written(proposed({"lake.raw.click": CLICKS, "lake.raw.hourly": HOURLY}))
    assert "No table has a matching name. Similar names: lake.raw.click" in words


def test_a_table_that_the_program_writes_is_not_proposed_for_its_topic() -> None:
    tables = {"lake.raw.clicks": CLICKS, "lake.raw.clicks_in": CLICKS}
    backfill, words = written(proposed(tables, hourly(name="q", table="raw.clicks")))
    assert backfill.spec.sources[0].table == "TODO.namespace.table"
    assert "No table but lake.raw.clicks, which the program writes, has a matching name." in words
    assert "Similar names: lake.raw.clicks_in." in words

    copies = {**TABLES, "lake.copy.clicks": CLICKS}
    _, words = written(proposed(copies))
    assert (
        "Several tables match the name of topic clicks: lake.copy.clicks, lake.raw.clicks" in words
    )


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("shop.orders", "lake.raw.orders"),
        ("shop.orders", "lake.shop.orders"),
        ("shop-orders", "lake.raw.shop_orders"),
        ("Orders", "lake.orders.ORDERS"),
    ],
)
def test_names_are_compared_without_case_and_punctuation(name: str, table: str) -> None:
    found = proposed({table: CLICKS, "lake.raw.hourly": HOURLY}, read=topic(name))
    assert found.sources[0].table.value == table
    assert written(found)


def test_fields_of_avro_in_another_case_than_columns_are_asked_about() -> None:
    json = topic(fields={"ID": "long", "at": "timestamp"})
    assert proposed(TABLES, read=json).sources[0].table.todo == ()
    read = json.model_copy(update={"value": "Avro", "avro_schema": "{}"})
    _, words = written(proposed(TABLES, read=read))
    assert "TODO: Some columns differ from the program's fields in case: id for ID." in words
    assert proposed(TABLES).sources[0].table.todo == ()


def test_the_full_name_counts_before_a_part_of_it() -> None:
    tables = {"lake.raw.orders": CLICKS, "lake.shop.orders": CLICKS, "lake.raw.hourly": HOURLY}
    assert proposed(tables, read=topic("shop.orders")).sources[0].table.value == "lake.shop.orders"


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("created", "created", "property backfill.arrival-column names it"),
        ("sequence", "sequence", "Check that this column"),
        ("gone", "TODO", "names gone, which is no column with times"),
        ("name", "TODO", "names name, which is no column with times"),
    ],
)
def test_a_table_may_say_when_its_rows_arrived(column: str, value: str, words: str) -> None:
    columns = {**CLICKS, "created": "timestamptz", "sequence": "long", "name": "string"}
    lake = Lake({"lake.raw.clicks": columns, "lake.raw.hourly": HOURLY})
    lake.arrivals["lake.raw.clicks"] = column
    (source,) = propose(Survey(inputs=(topic(),), queries=(hourly(),)), lake).sources
    assert source.timestamp_column.value == value
    assert words in " ".join((*source.timestamp_column.why, *source.timestamp_column.todo))


def test_the_time_of_arrival_is_one_that_the_program_does_not_read() -> None:
    by_name = {**CLICKS, "updated": "timestamptz"}
    source = proposed({**TABLES, "lake.raw.clicks": by_name}).sources[0]
    assert source.timestamp_column.value == "ingested"
    assert source.timestamp_column.why == (
        "The arrival time, judging by its name. Other time columns: updated.",
    )

    read = {"id": "long", "at": "timestamptz"}
    source = proposed({**TABLES, "lake.raw.clicks": {**read, "valid": "timestamptz"}}).sources[0]
    assert source.timestamp_column.value == "valid"
    assert source.timestamp_column.todo == (
        "Check that this is the arrival time: its name does not suggest it.",
    )

    unclear = {
        "id": "long",
        "at": "timestamptz",
        "created": "timestamptz",
        "updated": "timestamptz",
    }
    source = proposed({**TABLES, "lake.raw.clicks": unclear}).sources[0]
    assert source.timestamp_column.todo == (
        "Check that this is the arrival time. Candidates: created, updated.",
    )

    none = {"id": "long", "at": "timestamptz"}
    backfill, words = written(proposed({**TABLES, "lake.raw.clicks": none}))
    assert backfill.spec.sources[0].timestamp_column == "at"
    assert "at is the event time; use it only if rows arrive in that order" in words

    nested = {"id": "long", "at": "timestamptz", "__metadata__": "struct<...>"}
    nested["__metadata__.kafka_ingestion_ts"] = "timestamptz"
    source = proposed({**TABLES, "lake.raw.clicks": nested}).sources[0]
    assert source.timestamp_column.value == "__metadata__.kafka_ingestion_ts"

    number = {"id": "long", "at": "timestamptz", "kafka_ts": "long"}
    backfill, words = written(proposed({**TABLES, "lake.raw.clicks": {**number, "at": "string"}}))
    assert backfill.spec.sources[0].timestamp_unit == "ms"
    assert "in milliseconds; if not, correct timestampUnit" in words


def test_columns_of_kafka_are_found_by_their_names_unless_the_program_decodes_them() -> None:
    columns = {
        **CLICKS,
        "kafka_partition": "int",
        "kafka_offset": "long",
        "key": "string",
        "offset": "string",
    }
    backfill, _ = written(proposed({**TABLES, "lake.raw.clicks": columns}))
    kafka = backfill.spec.sources[0].kafka
    assert (kafka.partition_column, kafka.offset_column, kafka.key_column) == (
        "kafka_partition",
        "kafka_offset",
        "key",
    )
    read = topic(fields={"id": "long", "key": "string"})
    backfill, _ = written(proposed({**TABLES, "lake.raw.clicks": columns}, read=read))
    assert backfill.spec.sources[0].kafka.key_column is None


def test_a_table_of_undecoded_records_gives_their_values_unchanged() -> None:
    raw = {
        "key": "binary",
        "value": "binary",
        "partition": "int",
        "offset": "long",
        "timestamp": "timestamptz",
    }
    backfill, words = written(proposed({**TABLES, "lake.raw.clicks": raw}))
    (source,) = backfill.spec.sources
    value = source.live.kafka.value
    assert (value.format, value.column, source.timestamp_column) == ("column", "value", "timestamp")
    assert "Check that this is the arrival time" not in words
    assert "its column value contains the record values" in words


def test_values_in_avro_and_values_that_are_not_understood() -> None:
    avro = topic(value="Avro", avroSchema='{"type": "record"}', framed=True)
    backfill, words = written(proposed(TABLES, read=avro))
    live = backfill.spec.sources[0].live
    assert live is not None
    assert (live.kafka.value.avro_schema, live.kafka.value.framing) == (
        '{"type": "record"}',
        "Confluent",
    )
    assert "TODO: Set this to the schema's ID in production's registry" in words

    backfill, words = written(proposed(TABLES, read=topic(framed=True)))
    live = backfill.spec.sources[0].live
    assert live is not None
    assert (live.kafka.value.format, live.kafka.value.framing) == ("json", "Confluent")
    assert "TODO: Set this to the schema's ID in production's registry" in words

    numbers = topic(fields={"id": "long", "at": "long"})
    backfill, words = written(proposed(TABLES, read=numbers))
    live = backfill.spec.sources[0].live
    assert live is not None
    assert live.kafka.value.timestamp_unit == "ms"
    assert "TODO: Check the unit of at in production's records: the table has timestamps." in words

    _, words = written(proposed(TABLES, read=topic(value="Unknown", fields={})))
    assert "TODO: How the program decodes values could not be determined. JSON is assumed" in words


def test_outputs_without_a_table_say_what_to_look_for() -> None:
    backfill, words = written(proposed({"lake.raw.clicks": CLICKS}))
    assert backfill.spec.outputs[0].table == "TODO.namespace.table_written"
    assert (
        "TODO: Set this to the Iceberg table for the result of hourly. No table has a matching name"
        " and these columns: began"
        " timestamp, id bigint, count bigint."
    ) in words
    assert "TODO: How much input is needed before the window" in words


def test_several_outputs_without_a_table_and_with_one_name_are_in_a_manifest() -> None:
    queries = [hourly(name=name) for name in ("daily", "daily-2", "daily", None)]
    backfill, _ = written(proposed({"lake.raw.clicks": CLICKS}, *queries))
    assert [(each.name, each.table) for each in backfill.spec.outputs] == [
        ("daily", "TODO.namespace.table_written"),
        ("daily-2", "TODO.namespace.table_written_2"),
        ("daily-3", "TODO.namespace.table_written_3"),
        ("output", "TODO.namespace.table_written_4"),
    ]


def test_a_table_that_the_program_names_is_the_output_even_if_columns_differ() -> None:
    query = hourly(name=None, table="raw.hourly")
    found = proposed({**TABLES, "lake.raw.hourly": {"began": "timestamptz"}}, query)
    (output,) = found.outputs
    assert (output.name, output.table.value) == ("hourly", "lake.raw.hourly")
    assert output.table.todo == ("The table lacks id, count, which the query writes.",)


def test_keys_are_those_of_an_aggregation_if_the_table_has_them() -> None:
    nested = hourly(keys=("window.start", "id"), output_mode="update")
    _, words = written(proposed(TABLES, nested))
    assert (
        "TODO: Set this to the columns that identify a row; the query groups by window, id" in words
    )
    assert proposed(TABLES, hourly(keys=("window.start", "id"))).outputs[0].keys is None


def test_columns_of_an_output_are_named_as_in_its_table() -> None:
    upper = {name.upper(): kind for name, kind in HOURLY.items()}
    (output,) = proposed({**TABLES, "lake.raw.hourly": upper}).outputs
    assert output.timestamp_column is not None
    assert output.keys is not None
    assert (output.timestamp_column.value, output.keys.value) == ("BEGAN", ("BEGAN", "ID"))


def test_a_key_may_have_a_comma_in_its_name() -> None:
    table = {"began": "timestamptz", "id, as sent": "long"}
    columns = (
        SurveyedColumn(name="began", type="timestamp", is_event_time=True),
        SurveyedColumn(name="id, as sent", type="bigint"),
    )
    query = hourly(keys=("began", "id, as sent"), columns=columns)
    backfill, _ = written(proposed({**TABLES, "lake.raw.hourly": table}, query))
    assert backfill.spec.outputs[0].keys == ("began", "id, as sent")


def test_results_without_a_single_time_are_asked_about() -> None:
    two = (
        SurveyedColumn(name="opened", type="timestamp"),
        SurveyedColumn(name="closed", type="timestamp"),
    )
    table = {"opened": "timestamptz", "closed": "timestamptz"}
    _, words = written(proposed({**TABLES, "lake.raw.hourly": table}, hourly(columns=two, keys=())))
    assert (
        "TODO: Choose the column that decides whether a row is in the window. Candidates: opened,"
        " closed."
    ) in words

    none = (SurveyedColumn(name="id", type="bigint"),)
    backfill, words = written(
        proposed({**TABLES, "lake.raw.hourly": {"id": "long"}}, hourly(columns=none, keys=())),
        (explained(lookBackSeconds=60, lookAheadSeconds=60),),
    )
    assert backfill.spec.outputs[0].timestamp_column is None
    assert format_duration(backfill.spec.window.warm_up) == "0s"
    assert "TODO: Output hourly has no timestampColumn" in words


def test_queries_that_are_no_outputs_are_ignored_by_name_or_asked_about() -> None:
    alerts = hourly(name="alerts", format="kafka", topic="alerts")
    rows = hourly(name=None, by_row=True)
    backfill, words = written(proposed(TABLES, hourly(), alerts, rows))
    assert backfill.spec.ignored_queries == ("alerts",)
    assert "It sends records to the Kafka topic alerts, and no table has that name" in words
    (delivered, _) = backfill.spec.outputs
    assert (delivered.name, delivered.table) == ("rows", "lake.backfill_staged.rows")
    assert delivered.publish.mode == "Deliver"
    assert "TODO: Give its query the name rows (queryName)." in words

    twice = hourly(name="again", table="lake.raw.hourly")
    backfill, words = written(proposed(TABLES, hourly(), twice))
    assert len(backfill.spec.outputs) == 1
    assert "write the same table" not in words, "both append"
    twice = hourly(name="again", table="lake.raw.hourly", output_mode="complete")
    backfill, words = written(proposed(TABLES, hourly(), twice))
    assert len(backfill.spec.outputs) == 1
    assert "TODO: again and hourly write the same table lake.raw.hourly" in words


def test_records_that_are_sent_to_kafka_go_into_a_table_of_the_topic() -> None:
    columns = (
        SurveyedColumn(name="value", type="string"),
        SurveyedColumn(name="began", type="timestamp"),
    )
    records = {"value": "string", "began": "timestamptz"}
    alerts = hourly(name=None, format="kafka", topic="prod.alerts", columns=columns, keys=())
    found = proposed({**TABLES, "lake.raw.alerts": records}, alerts)
    (output,) = found.outputs
    assert (output.name, output.table.value) == ("alerts", "lake.raw.alerts")
    assert found.ignored == ()


def test_outputs_of_functions_are_what_these_have_written() -> None:
    writes = (
        SurveyedWrite(place="raw.hourly", how="spark.sql (MERGE)", keys=("began", "id")),
        SurveyedWrite(place="public.audit", how="write.jdbc"),
        SurveyedWrite(place="s3a://lake/out/archive/", how="write.parquet"),
    )
    tables = {**TABLES, "lake.copies.audit": HOURLY}
    query = hourly(name="upsert", function="upsert", writes=writes)
    merged, copied, unknown = proposed(tables, query).outputs
    assert (merged.name, merged.table.value) == ("hourly", "lake.raw.hourly")
    assert merged.keys is not None
    assert merged.keys.value == ("began", "id")
    assert (copied.name, copied.table.value) == ("audit", "lake.copies.audit")
    assert "TODO" not in str(copied.table)
    assert unknown.name == "archive"
    assert "what the foreachBatch function upsert writes to s3a://lake" in unknown.table.todo[0]

    backfill, text = written(proposed(TABLES, hourly(name="f", function="f")))
    assert backfill.spec.outputs[0].name == "f"
    assert "TODO: Set this to the table that the foreachBatch function f writes" in text


def test_what_a_function_does_outside_of_spark_is_delivered() -> None:
    problem = SurveyedProblem(message="foreachBatch connects to db:5432 (app.py, line 9)")
    query = hourly(name="send", function="send-alerts", problems=(problem,))
    later = hourly(name="later", function="later", clients=("psycopg2",))
    backfill, words = written(proposed(TABLES, query, later))
    assert [(each.name, each.table) for each in backfill.spec.outputs] == [
        ("send-alerts", "lake.backfill_staged.send_alerts"),
        ("later", "lake.backfill_staged.later"),
    ]
    assert {each.publish.mode for each in backfill.spec.outputs} == {"Deliver"}
    assert "once they are approved: foreachBatch connects to db:5432 (app.py, line 9)." in words
    assert "once they are approved: the function may use psycopg2." in words


def test_deliveries_are_told_apart_and_found_by_their_queries() -> None:
    problem = SurveyedProblem(message="foreachBatch connects to db:5432")
    named = ("Notify customers", "alerts.v1-EU", "alerts-v1.EU", "hourly", "通知")
    queries = [hourly(name=each, function=each, problems=(problem,)) for each in named]
    rows = [hourly(name=None, by_row=True) for _ in range(2)]
    table = hourly(name="x", table="lake.raw.hourly")
    backfill, words = written(proposed(TABLES, table, *queries, *rows))
    outputs = {each.name: each.table for each in backfill.spec.outputs}
    assert list(outputs) == [
        "Notify-customers",
        "alerts.v1-EU",
        "alerts-v1.EU",
        "hourly",
        "unnamed",
        "rows",
        "rows-2",
        "x",
    ]
    assert len(set(outputs.values())) == len(outputs)
    for name in ("unnamed", "rows", "rows-2"):
        assert f"TODO: Give its query the name {name} (queryName)." in words or name == "unnamed"


def test_static_tables_are_listed() -> None:
    survey = Survey(inputs=(topic(),), queries=(hourly(),), static_tables=("lake.dim.users",))
    backfill, words = written(propose(survey, Lake(TABLES)))
    assert [each.table for each in backfill.spec.static_tables] == ["lake.dim.users"]
    assert "(asOf: window)" in words


def test_sources_that_are_read_by_name_have_the_table_of_the_configuration() -> None:
    by_name = {"kind": "Named", "value": "Unknown", "fields": {}, "table": "lake.raw.clicks"}
    survey = Survey(
        inputs=(topic("visits", topic="clicks.v2", **by_name),),
        queries=(hourly(inputs=("visits",)),),
    )
    backfill, _ = written(propose(survey, Lake(TABLES)))
    (source,) = backfill.spec.sources
    assert (source.name, source.table, source.timestamp_column) == (
        "visits",
        "lake.raw.clicks",
        "ingested",
    )
    assert source.live.kafka.topic == "clicks.v2"


def test_sources_of_one_name_are_told_apart() -> None:
    survey = Survey(inputs=(topic("a/b"), topic("a b")), queries=(hourly(inputs=("a/b", "a b")),))
    backfill, _ = written(propose(survey, Lake(TABLES)))
    assert [each.name for each in backfill.spec.sources] == ["a-b", "a-b-2"]


def test_rows_that_arrive_later_than_results_wait_make_the_drain_longer() -> None:
    stateless = explained(lookBackSeconds=0, lookAheadSeconds=0)
    backfill, words = written(proposed(TABLES), (stateless,), {"clicks": lags(most=200)})
    assert format_duration(backfill.spec.window.drain) == "4m"
    assert "99.9% of the rows arrived within 3m20s of their event time" in words
    assert format_duration(backfill.spec.window.warm_up) == "0s"


def test_the_drain_of_a_stream_lasts_until_the_events_that_close_its_results_have_arrived() -> None:
    stream = explained(execution="Streaming", lookBackSeconds=3_600, lookAheadSeconds=4_200)
    backfill, words = written(proposed(TABLES), (stream,), {"clicks": lags(most=200)})
    assert format_duration(backfill.spec.window.warm_up) == "1h"
    assert format_duration(backfill.spec.window.drain) == "1h13m20s"
    assert "TODO: How much input" not in words


def test_rows_that_arrive_before_they_happen_make_the_warm_up_longer() -> None:
    def warm_up(look_back: int, lag: ArrivalLags) -> str:
        back = explained(lookBackSeconds=look_back, lookAheadSeconds=0)
        backfill, _ = written(proposed(TABLES), (back,), {"clicks": lag})
        return format_duration(backfill.spec.window.warm_up)

    assert warm_up(60, lags(early=-30)) == "1m30s"
    assert warm_up(0, lags(early=-30)) == "30s"
    assert warm_up(60, lags(least=-(10**9))) == "1m"


def test_event_times_that_must_be_wrong_do_not_count() -> None:
    back = explained(lookBackSeconds=60, lookAheadSeconds=60)
    century = 100 * 365 * 86_400
    for lag in (lags(most=century), lags(early=-century)):
        backfill, words = written(proposed(TABLES), (back,), {"clicks": lag})
        window = backfill.spec.window
        assert (format_duration(window.warm_up), format_duration(window.drain)) == ("1m", "1m")
        assert "TODO: More than one in a thousand rows of a source have an event time" in words


def test_allowed_lateness_is_what_the_watermark_leaves() -> None:
    def lateness(most: int) -> tuple[str, str]:
        backfill, words = written(proposed(TABLES), None, {"clicks": lags(most=most)})
        return format_duration(backfill.spec.ordering.allowed_lateness), words

    assert lateness(200)[0] == "5m"
    assert lateness(500)[0] == "1m40s"
    value, words = lateness(600)
    assert value == "0s"
    assert "leaves 0s" in words
    assert "Production drops rows" not in words
    value, words = lateness(700)
    assert value == "0s"
    assert "TODO: Production drops rows as late" in words

    backfill, words = written(proposed(TABLES))
    assert format_duration(backfill.spec.ordering.allowed_lateness) == "5m"
    assert "which could not be measured for every source" in words
    backfill, words = written(proposed(TABLES, hourly(watermarks=())))
    assert "The default: the program has no watermark, so no row can be too late" in words


def test_streams_and_sessions_are_asked_about() -> None:
    stream = explained(execution="Streaming", executionReason="it keeps state of its own")
    backfill, words = written(proposed(TABLES, hourly(sessions=True)), (stream,))
    assert (
        "TODO: How much input is needed before the window cannot be computed for hourly, which runs"
        " in Streaming execution, because it keeps state of its own"
    ) in words
    assert "hourly has session windows: add the length of the longest session" in words
    assert format_duration(backfill.spec.window.drain) == "10m"


def test_outputs_are_as_a_spec_lists_them_and_those_that_it_ignores_are_none() -> None:
    alerts = hourly(name="alerts", table="alerts")
    found = proposed({"lake.raw.clicks": CLICKS}, hourly(), alerts)
    assert {each.name for each in found.outputs} == {"hourly", "alerts"}
    given = Output(name="hourly", table="lake.ops.by_hour", timestamp_column="began")
    (output,) = with_given(found, [given], ["alerts"]).outputs
    assert (output.table.value, output.found) == ("lake.ops.by_hour", True)
    assert output.timestamp_column is not None and output.timestamp_column.todo == ()
    by_table = proposed(TABLES)
    (output,) = with_given(by_table, [Output(name="x", table="lake.raw.hourly")], []).outputs
    assert (output.name, output.timestamp_column) == ("x", None)


def test_a_table_that_matches_two_topics_is_asked_for() -> None:
    inputs = (topic("eu.clicks"), topic("us.clicks"))
    survey = Survey(inputs=inputs, queries=(hourly(inputs=("eu.clicks", "us.clicks")),))
    tables = {"lake.us.clicks": CLICKS, "lake.raw.hourly": HOURLY}
    first, second = propose(survey, Lake(tables)).sources
    assert "lake.us.clicks also matches us.clicks" in first.table.todo[0]
    assert "lake.us.clicks also matches eu.clicks" in second.table.todo[0]
    apart = {"lake.eu.clicks": CLICKS, **tables}
    assert not any(each.table.todo for each in propose(survey, Lake(apart)).sources)
