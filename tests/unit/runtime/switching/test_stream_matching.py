"""Which source or output of the resource a stream of the application is."""

import pytest

from backfill.api.errors import UnsupportedProgram
from backfill.api.output import Output
from backfill.api.source import Live, LiveKafka, Source
from backfill.api.spec import Execution
from backfill.runtime.named_sources import NAMED_FORMAT
from backfill.runtime.switching.stream_matching import (
    Target,
    check_function,
    check_same_cluster,
    check_same_topic,
    is_left_out,
    kafka_sources,
    match_output,
    match_write,
    reason_to_leave_out,
    same_place,
    same_table,
    static_table,
    subscribed_topics,
    table_source,
    without_partitions,
)


def _source(name: str, topic: str | None, table: str | None = None) -> Source:
    live = Live(kafka=LiveKafka(topic=topic)) if topic else None
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


def test_a_subscription_is_the_source_of_that_topic() -> None:
    assert [source.name for source in kafka_sources({"subscribe": "raw-playbacks"}, SOURCES)] == [
        "playbacks"
    ]


def test_a_topic_that_is_listed_twice_is_read_once() -> None:
    twice = {"subscribe": "raw-playbacks, raw-impressions,raw-playbacks,"}
    assert kafka_sources(twice, SOURCES) == [SOURCES[1], SOURCES[0]]
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
    found = kafka_sources({"subscribe": "raw-playbacks, raw-impressions"}, SOURCES)
    assert [source.name for source in found] == ["playbacks", "impressions"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "other"}, ["topic other", "live.kafka.topic: other"]),
        ({"subscribe": "raw-playbacks,a,b"}, ["topic a", "topic b"]),
        ({"subscribepattern": "raw-.*"}, ["subscribePattern"]),
        ({"assign": '{"raw-playbacks":[0]}'}, ["assigned partitions"]),
        ({"subscribe": "raw-playbacks", "includeheaders": "true"}, ["includeHeaders"]),
        ({}, ["no option subscribe"]),
    ],
)
def test_a_subscription_that_can_not_be_replaced_is_refused_by_name(
    options: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(UnsupportedProgram) as error:
        kafka_sources(options, SOURCES)
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
    assert match_output(target, OUTPUTS, dict.fromkeys(taken, "q")).name == output, case


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
            Target(table="default.play_summary"),
            ["summary"],
            [
                (
                    "two queries write the output summary (lake.default.play_summary): the query"
                    " q, and"
                ),
                "combine",
                "ignoredQueries",
            ],
        ),
        (
            Target(query_name="x", row_writer=True),
            [],
            ["foreach ", "within foreachBatch", "no output has"],
        ),
    ],
)
def test_a_query_that_can_not_be_redirected_is_told_every_reason(
    target: Target, taken: list[str], words: list[str]
) -> None:
    with pytest.raises(UnsupportedProgram) as error:
        match_output(target, OUTPUTS, dict.fromkeys(taken, "q"))
    assert all(word in str(error.value) for word in words)


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
    assert match_output(Target(table=place), TWINS, {}).table == table


def test_a_table_that_may_be_that_of_several_outputs_is_refused() -> None:
    with pytest.raises(UnsupportedProgram, match=r"may be archive\.default\.plays or lake"):
        match_write("default.plays", "write.save", "q", TWINS)
    with pytest.raises(UnsupportedProgram, match="qualify the name with its catalog"):
        match_output(Target(table="default.plays"), TWINS, {})
    assert match_output(Target(query_name="plays", table="default.plays"), TWINS, {}) is TWINS[1]


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
