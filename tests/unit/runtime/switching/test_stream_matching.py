"""Which source or output of the resource a stream of the application is."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from backfill.api.errors import UnsupportedProgram
from backfill.api.output import Output
from backfill.api.source import KafkaColumns, Live, LiveKafka, Source
from backfill.api.spec import Execution
from backfill.runtime.named_sources import NAMED_FORMAT
from backfill.runtime.queries.run_state import OutputWrites
from backfill.runtime.switching.stream_matching import (
    Target,
    assigned_partitions,
    check_function,
    check_same_cluster,
    check_same_topic,
    check_shared,
    includes_headers,
    is_left_out,
    kafka_sources,
    match_output,
    match_write,
    name_by_checkpoint,
    name_of_function,
    name_of_query,
    reason_to_leave_out,
    same_place,
    same_table,
    static_table,
    subscribed_topics,
    table_source,
    without_partitions,
)


def _source(name: str, topic: str | None, table: str | None = None) -> Source:
    live = Live(kafka=LiveKafka(topic=topic)) if topic else Live()
    return Source(
        name=name, table=table or f"lake.default.{name}", timestamp_column="at", live=live
    )


SOURCES = (
    _source("impressions", "raw-impressions"),
    _source("playbacks", "raw-playbacks"),
    _source("devices", None),
)
OUTPUTS = (
    Output(name="summary", table="lake.default.play_summary"),
    Output(name="errors", table="lake.default.play_errors"),
)


def _read(options: Mapping[str, str], sources: Sequence[Source] = SOURCES) -> list[str]:
    def matches(pattern: str, topic: str) -> bool:
        return re.fullmatch(pattern, topic) is not None

    return [source.name for source in kafka_sources(options, sources, matches)]


def test_a_subscription_is_the_source_of_that_topic() -> None:
    assert _read({"subscribe": "raw-playbacks"}) == ["playbacks"]


def test_a_topic_that_is_listed_twice_is_read_once() -> None:
    twice = {"subscribe": "raw-playbacks, raw-impressions,raw-playbacks,"}
    assert _read(twice) == ["playbacks", "impressions"]
    assert subscribed_topics(twice) == ["raw-playbacks", "raw-impressions"]


def test_a_source_by_name_goes_on_in_the_topic_that_it_has_in_production() -> None:
    check_same_topic({"subscribe": "raw-impressions"}, SOURCES[0])
    check_same_topic({"source": "impressions"}, SOURCES[0])
    with pytest.raises(UnsupportedProgram, match="from the topic other, but"):
        check_same_topic({"subscribe": "other"}, SOURCES[0])


def test_readers_of_a_source_have_a_server_of_one_cluster_in_common() -> None:
    known = {"kafka.bootstrap.servers": "a:9092, b:9092"}
    check_same_cluster(known, {"kafka.bootstrap.servers": "c:9092,b:9092"}, SOURCES[0])
    with pytest.raises(
        UnsupportedProgram, match="topic raw-impressions from a:9092, b:9092 and from c:9092"
    ):
        check_same_cluster(known, {"kafka.bootstrap.servers": "c:9092"}, SOURCES[0])


def test_a_subscription_to_several_topics_is_their_sources_in_that_order() -> None:
    assert _read({"subscribe": "raw-playbacks, raw-impressions"}) == ["playbacks", "impressions"]


def test_a_pattern_is_the_sources_whose_whole_topic_matches() -> None:
    assert _read({"subscribepattern": "raw-.*s"}) == ["impressions", "playbacks"]
    assert _read({"subscribepattern": "raw-p|raw-playbacks"}) == ["playbacks"]


def test_assigned_partitions_are_the_sources_of_their_topics() -> None:
    assigned = {"assign": '{"raw-playbacks": [0, 2], "raw-impressions": [1]}'}
    sources = [
        source.model_copy(update={"kafka": KafkaColumns(partition_column="p")})
        for source in SOURCES
    ]
    assert _read(assigned, sources) == ["playbacks", "impressions"]
    assert assigned_partitions(assigned) == {"raw-playbacks": [0, 2], "raw-impressions": [1]}
    assert subscribed_topics(assigned) == ["raw-playbacks", "raw-impressions"]


def test_headers_are_read_where_the_program_asks_for_them() -> None:
    assert includes_headers({"includeheaders": "True"})
    assert not includes_headers({"includeheaders": "false"})
    assert not includes_headers({})


def test_a_source_replaces_the_topic_of_its_name_unless_another_one_says_that_it_does() -> None:
    plain = [
        Source(name=name, table=f"lake.raw.{name}", timestamp_column="at")
        for name in ("orders", "titles")
    ]
    assert _read({"subscribe": "orders"}, plain) == ["orders"]
    other = Source.model_validate(
        {
            "name": "old-orders",
            "table": "lake.raw.old",
            "timestampColumn": "at",
            "live": {"kafka": {"topic": "orders"}},
        }
    )
    assert _read({"subscribe": "orders"}, [*plain, other]) == ["old-orders"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "other"}, ["topic other", "live.kafka.topic: other"]),
        ({"subscribe": "raw-playbacks,a,b"}, ["topic a", "topic b"]),
        ({"subscribepattern": "raw"}, ["matches the pattern raw", "live.kafka.topic"]),
        (
            {"assign": '{"raw-playbacks":[0]}'},
            [
                "spec.sources[1].kafka.partitionColumn",
                "topic raw-playbacks",
                "set it, or subscribe",
            ],
        ),
        ({"assign": '{"other":[0]}'}, ["topic other"]),
        ({"assign": "raw-playbacks"}, ["sets assign to raw-playbacks", "as JSON"]),
        ({"assign": '["raw-playbacks"]'}, ["as JSON"]),
        ({}, ["no option subscribe"]),
    ],
)
def test_a_subscription_that_can_not_be_replaced_is_refused_by_name(
    options: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(UnsupportedProgram) as error:
        _read(options)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    "written",
    ["lake.default.devices", "default.devices", "`lake`.default.devices", "LAKE.Default.Devices"],
)
def test_a_table_is_found_with_or_without_its_catalog(written: str) -> None:
    assert table_source(written, SOURCES).name == "devices"


def test_a_table_that_is_no_source_or_more_than_one_is_refused() -> None:
    with pytest.raises(UnsupportedProgram, match="no source reads the table"):
        table_source("default.other", SOURCES)
    with pytest.raises(UnsupportedProgram, match="several sources"):
        table_source(
            "default.devices", (*SOURCES, _source("other_devices", None, "lake.default.devices"))
        )


def test_a_name_without_its_namespace_is_not_the_table() -> None:
    assert not same_table("lake.default.devices", "devices")


@pytest.mark.parametrize(
    ("case", "target", "taken", "output"),
    [
        (
            "its name comes first",
            Target(query_name="errors", table="lake.default.play_summary"),
            [],
            "errors",
        ),
        ("then its table", Target(query_name="other", table="default.play_errors"), [], "errors"),
        ("then its topic", Target("kafka", "other", topic="errors"), [], "errors"),
        ("also its last part", Target("kafka", topic="plays.prod.errors"), [], "errors"),
        ("or its path", Target("parquet", table="s3a://lake/out/errors/"), [], "errors"),
        ("or its table in the session's namespace", Target(table="errors"), [], "errors"),
        ("then what nobody else writes", Target(query_name="other"), ["errors"], "summary"),
        (
            "mode is not case-sensitive",
            Target(query_name="errors", output_mode="Append"),
            [],
            "errors",
        ),
    ],
)
def test_a_query_finds_its_output(case: str, target: Target, taken: list[str], output: str) -> None:
    assert match_output(target, OUTPUTS, taken).name == output, case


@pytest.mark.parametrize(
    ("target", "taken", "words"),
    [
        (
            Target(format="delta", table="/archive"),
            [],
            ["a query without a name, which writes to /archive (delta)", "summary or errors"],
        ),
        (
            Target(query_name="debug"),
            ["summary", "errors"],
            ["the query debug", "no output is left"],
        ),
        (
            Target(table="audit.errors"),
            [],
            ["no output has the name, table, topic or path of a query without a name"],
        ),
        (
            Target("kafka", "alerts", topic="summary.v2"),
            [],
            ["no output has the name, table, topic or path of the query alerts"],
        ),
        (
            Target(NAMED_FORMAT, "errs"),
            ["summary"],
            ["writes the output errs", "the outputs are summary, errors"],
        ),
        (
            Target(query_name="x", row_writer="foreach (app.py, line 7)"),
            [],
            [
                "foreach (app.py, line 7) runs",
                "within foreachBatch",
                "list the query x in spec.ignoredQueries",
                "no output has",
            ],
        ),
    ],
)
def test_a_query_that_can_not_be_redirected_is_told_every_reason(
    target: Target, taken: list[str], words: list[str]
) -> None:
    with pytest.raises(UnsupportedProgram) as error:
        match_output(target, OUTPUTS, taken)
    assert all(word in str(error.value) for word in words)


TABLE = Target("iceberg", "a", table="default.play_summary")
WRITTEN = OutputWrites("lake.default.play_summary", records=False, holds="Rows")


def test_queries_that_append_to_one_table_share_its_output() -> None:
    summary = OUTPUTS[0]
    assert match_output(TABLE, OUTPUTS, ["summary"]) == summary
    check_shared(TABLE, summary, "q", WRITTEN)
    assert name_of_query(TABLE, summary) == "a"
    unnamed = replace(TABLE, query_name=None, checkpoint="s3://ck/first/")
    assert name_of_query(unnamed, summary) == "summary-first"
    assert name_of_query(replace(unnamed, checkpoint="/ck/summary"), summary) == "summary"
    renamed = replace(unnamed, query_name="a-2f1c9d3e")
    assert name_of_query(renamed, summary) == "summary-first", "another one in each attempt"


@pytest.mark.parametrize(
    "target, writes, words",
    [
        (replace(TABLE, output_mode="update"), WRITTEN, "one of them updates"),
        (TABLE, replace(WRITTEN, holds="Result"), "one of them updates or overwrites rows"),
        (TABLE, replace(WRITTEN, records=True), "sends records to Kafka"),
        (replace(TABLE, table="/archive/summary"), WRITTEN, "different places, lake.default"),
        (Target(query_name="summary"), WRITTEN, "and what the query summary writes"),
    ],
)
def test_queries_whose_rows_would_mix_do_not_share_an_output(
    target: Target, writes: OutputWrites, words: str
) -> None:
    with pytest.raises(UnsupportedProgram, match=words) as error:
        check_shared(target, OUTPUTS[0], "q", writes)
    assert "two queries write the output summary (lake.default.play_summary)" in str(error.value)


@pytest.mark.parametrize(
    "target",
    [
        Target(format="console"),
        Target(format="noop", query_name="other"),
        Target(format="memory", query_name="peek"),
        Target(format="kafka", query_name="alerts", topic="anything"),
        Target(format="kafka", topic="alerts"),
        Target(format="parquet", table="alerts"),
        Target(query_name="alerts"),
    ],
)
def test_a_side_query_takes_no_output(target: Target) -> None:
    assert reason_to_leave_out(target, OUTPUTS, ["alerts"])


@pytest.mark.parametrize(
    "target",
    [
        Target(format="console", query_name="summary"),
        Target(format="kafka", query_name="other", topic="alerts"),
        Target(format="parquet", table="/archive"),
        Target(NAMED_FORMAT, "errors"),
    ],
)
def test_a_query_that_an_output_or_a_name_of_its_own_speaks_for_is_run(target: Target) -> None:
    assert reason_to_leave_out(target, OUTPUTS, ["alerts"]) is None


@pytest.mark.parametrize(
    ("place", "query", "output"),
    [
        ("default.play_errors", "summary", "errors"),
        ("`lake`.`default`.`play_summary`", "q", "summary"),
        ("errors", "summary", "errors"),
        ("s3://lake/tables/errors/", "summary", "errors"),
        ("reports.public.errors", "summary", "errors"),
        ("s3://lake/anything", "summary", "summary"),
    ],
)
def test_a_write_of_a_batch_finds_its_output_by_table_name_path_or_query(
    place: str, query: str, output: str
) -> None:
    assert match_write(place, "write.save", query, OUTPUTS).name == output


def test_a_write_of_a_batch_to_no_output_is_refused_with_its_name_and_what_to_do() -> None:
    with pytest.raises(UnsupportedProgram) as error:
        match_write("audit.log", "write.saveAsTable", "q", OUTPUTS)
    words = [
        "audit.log (write.saveAsTable)",
        "the name log",
        "list audit.log in spec.ignoredQueries",
    ]
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("place", "ignored"),
    [
        ("audit.log", "audit.log"),
        ("audit.log", "log"),
        ("`audit`.`log`", "audit.log"),
        ("`audit.log`", "audit.log"),
        ("audit.log", "`audit`.`log`"),
        ("`audit`.`log`", "`audit`.`log`"),
        ("s3://lake/log/", "s3://lake/log"),
        ("s3://lake/log", "s3://lake/log/"),
    ],
)
def test_a_place_is_left_out_however_its_name_is_quoted(place: str, ignored: str) -> None:
    assert is_left_out(place, (ignored,))
    assert reason_to_leave_out(Target(table=place), OUTPUTS, (place,))
    if ignored != "log":
        assert reason_to_leave_out(Target(table=place), OUTPUTS, (ignored,))
    assert not is_left_out(place, ("audit", "reports.log", "query"))
    assert reason_to_leave_out(Target(table=place), OUTPUTS, ("audit", "reports.log")) is None


TWINS = (
    Output(name="copies", table="archive.default.plays"),
    Output(name="plays", table="lake.default.plays"),
    Output(name="cased", table="lake.default.Plays"),
)


@pytest.mark.parametrize(
    ("place", "table"),
    [
        ("lake.default.plays", "lake.default.plays"),
        ("lake.default.Plays", "lake.default.Plays"),
        ("`archive`.`default`.`plays`", "archive.default.plays"),
        ("ARCHIVE.default.PLAYS", "archive.default.plays"),
    ],
)
def test_of_tables_with_similar_names_the_one_that_is_written_is_meant(
    place: str, table: str
) -> None:
    assert match_write(place, "write.save", "q", TWINS).table == table
    assert match_output(Target(table=place), TWINS, []).table == table


def test_a_table_that_may_be_that_of_several_outputs_is_refused() -> None:
    with pytest.raises(UnsupportedProgram, match=r"may be archive\.default\.plays or lake"):
        match_write("default.plays", "write.save", "q", TWINS)
    with pytest.raises(UnsupportedProgram, match="qualify the name with its catalog"):
        match_output(Target(table="default.plays"), TWINS, [])
    assert match_output(Target(query_name="plays", table="default.plays"), TWINS, []) is TWINS[1]


@pytest.mark.parametrize("place", ["default.play_errors", "`lake`.`default`.`play_errors`"])
def test_the_table_of_an_output_is_not_left_out_because_a_query_has_its_name(place: str) -> None:
    assert not is_left_out(place, ("play_errors",), OUTPUTS)
    assert is_left_out("staging.play_errors", ("play_errors",), OUTPUTS)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("lake.default.plays", "default.plays", True),
        ("`default`.plays", "plays", True),
        ("s3://a/plays", "s3://a/plays/", True),
        ("staging.plays", "prod.plays", False),
        ("plays", "replays", False),
        ("s3://a/plays", "s3://b/plays", False),
    ],
)
def test_a_place_may_be_named_in_several_ways(one: str, other: str, same: bool) -> None:
    assert same_place(one, other) is same


@pytest.mark.parametrize(
    ("others", "execution", "words"),
    [
        ({"each"}, "Auto", ["two queries are named each", "queryName"]),
        (
            set(),
            "Batch",
            ['spec.execution: "Batch" is not possible for the query each: its function'],
        ),
    ],
)
def test_a_query_with_a_function_has_a_name_of_its_own_and_runs_as_a_stream(
    others: set[str], execution: Execution, words: list[str]
) -> None:
    check_function("each", {"another"}, "Streaming")
    with pytest.raises(UnsupportedProgram) as error:
        check_function("each", others, execution)
    assert all(word in str(error.value) for word in words)


def test_queries_without_names_are_told_apart_by_their_checkpoints_in_any_order() -> None:
    def function(_: object, __: int) -> None: ...

    assert name_of_function(lambda _, __: None) == "foreachBatch"
    assert name_of_function(function) == "function"
    names = {
        "/tmp/dns-raw": "write-dns-raw",
        "s3a://lake/checkpoints/orders/": "write-orders",
        "s3a://lake/orders/_checkpoints": "write-orders",
        "s3a://lake/users/checkpoint": "write-users",
        None: "write",
        "": "write",
        "checkpoint": "write",
        "/tmp/tmpk3x_9wq2": "write",  # it may be another one in the next attempt
        "/tmp/run-2f1c6f0e-5f0d-4f4b": "write",
        "/tmp/alerts-2026-03-10T09": "write",
    }
    assert {place: name_by_checkpoint("write", place) for place in names} == names


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("s3://lake/plays/day=2021-07-11/hour=3/", "s3://lake/plays"),
        ("/data/plays/batch=1", "/data/plays"),
        ("/data/day=1/plays", "/data/day=1/plays"),
        ("lake.default.plays", "lake.default.plays"),
    ],
)
def test_the_directory_of_a_partition_is_in_the_path_of_its_table(place: str, path: str) -> None:
    assert without_partitions(place) == path


LISTED = (
    "x.lake.crm.users",
    "lake.crm.users",
    "lake.crm.Rates",
    "lake.crm.rates",
    "old.crm.prices",
)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("lake.crm.users", "lake.crm.users"),
        ("`lake`.`crm`.`USERS`", "lake.crm.users"),
        ("x.lake.crm.users", "x.lake.crm.users"),
        ("lake.crm.rates", "lake.crm.rates"),
        ("lake.crm.Rates", "lake.crm.Rates"),
        ("CRM.prices", "old.crm.prices"),
        ("prices", None),
        ("other.crm.prices", None),
        ("crm.users.history", None),
    ],
)
def test_a_static_table_is_the_one_whose_name_is_written(written: str, found: str | None) -> None:
    assert static_table(written, LISTED) == found


@pytest.mark.parametrize("written", ["crm.rates", "lake.crm.RATES"])
def test_a_name_that_may_be_several_static_tables_is_refused(written: str) -> None:
    with pytest.raises(UnsupportedProgram, match=r"may be lake\.crm\.Rates or lake\.crm\.rates"):
        static_table(written, LISTED)
