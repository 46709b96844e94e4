"""A staged result is compared with production as a person would: by key, or row by row."""

import json
import threading
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from math import isnan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from compared_tables import staged_and_production
from every_type import EMPTY, FULL, rows_of_every_type
from every_type import SCHEMA as EVERY_TYPE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.output import Output
from backfill.api.validation import percentage
from backfill.protocol.split_assignment import OutputComparison
from backfill.runtime.batch.table_files import source_table, splits_of
from backfill.runtime.comparison.compare_outputs import compare_output, compare_outputs
from backfill.runtime.comparison.count_matches import Counts, Repeated, Rows, Wish, compare
from backfill.runtime.comparison.numbered_rows import NUMBER, NumberedRows
from backfill.runtime.comparison.report import Clues
from backfill.runtime.settings import RuntimeSettings
from comparison_reports import START
from iceberg_tables import position_deletes

COLUMNS = (
    "k int, x double, `a.name``` string, paid decimal(20, 2), m map<string, struct<n: int>>, b int"
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, 1, 2, 3]),
        st.sampled_from([None, 0.0, -0.0, 1.0, 1.25, float("nan"), float("inf")]),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([None, Decimal("1.00"), Decimal("1.01")]),
        st.sampled_from([None, {}, {"a": None}, {"a": (None,)}, {"a": (1,), "b": None}]),
        st.integers(-1, 1),
    ),
    max_size=8,
)
"""The last column is the stretch of time, and is not compared."""
TOLERANCE = {"x": "0.25", "paid": "0.01"}


@pytest.fixture
def lake(lake_of_workers: Catalog) -> Catalog:
    return lake_of_workers


def plain(value: Any) -> Any:
    """A value whose equality is that for people."""
    if isinstance(value, dict):
        return frozenset((name, plain(each)) for name, each in value.items())
    return "nan" if isinstance(value, float) and isnan(value) else value


def near(one: Any, other: Any, name: str, tolerance: dict[str, str]) -> bool:
    if plain(one) == plain(other):
        return True
    if name not in tolerance or None in (one, other) or "nan" in (plain(one), plain(other)):
        return False
    return bool(abs(one - other) <= type(one)(tolerance[name]))


def expected(
    ours: list[Any], theirs: list[Any], names: list[str], wish: Wish
) -> tuple[dict[int, Counts], dict[int, Repeated], dict[str, int], int]:
    """By the definition: of two rows with a key of their own, each column is equal or near. Of
    others, equal ones match, each once, and of the rest with one key as many as both sides have are
    different. These are the counts by the earliest time of the key, those of rows that a side has more
    often, in how many pairs each column differs, and how many keys the other side has twice.
    """

    def values(row: Any, of: tuple[str, ...]) -> tuple[Any, ...]:
        return tuple(plain(row[names.index(name)]) for name in of)

    identity = wish.keys or wish.compared
    buckets: dict[int, Counts] = {}
    repeated: dict[int, Repeated] = {}
    columns = dict.fromkeys(wish.compared, 0)
    twice = 0
    for key in {values(row, identity) for row in (*ours, *theirs)}:
        mine, its = (
            [row for row in rows if values(row, identity) == key] for rows in (ours, theirs)
        )
        twice += len(its) > 1
        common = min(len(mine), len(its))
        one, other = (Counter(values(row, wish.compared) for row in rows) for rows in (mine, its))
        matching = (one & other).total()
        if len(mine) == len(its) == 1 and not matching:
            apart = [
                name
                for name, a, b in zip(names, mine[0], its[0], strict=True)
                if name in wish.compared and not near(a, b, name, dict(wish.tolerance))
            ]
            matching = int(not apart)
            for name in apart:
                columns[name] += 1
        counts = Counts(matching, common - matching, len(its) - common, len(mine) - common)
        bucket = min(row[-1] for row in (*mine, *its))
        buckets[bucket] = buckets.get(bucket, Counts()) + counts
        if common and (counts.missing or counts.extra):
            before = repeated.get(bucket, Repeated())
            repeated[bucket] = Repeated(
                before.missing + counts.missing, before.extra + counts.extra
            )
    return buckets, repeated, columns, twice


def numbered(frame: DataFrame) -> Rows:
    """The rows of a DataFrame as a side."""
    rows = frame.withColumn(NUMBER, F.monotonically_increasing_id())
    return Rows(rows, F.col("b"), lambda chosen: rows.join(chosen, NUMBER))


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ours=ROWS,
    theirs=ROWS,
    keys=st.sampled_from([(), ("k",), ("x", "m")]),
    tolerance=st.sampled_from([{}, TOLERANCE]),
)
def test_any_rows_are_counted_by_the_definition(
    spark: SparkSession,
    ours: list[Any],
    theirs: list[Any],
    keys: tuple[str, ...],
    tolerance: dict[str, str],
) -> None:
    staged, production = (spark.createDataFrame(rows, COLUMNS) for rows in (ours, theirs))
    names = staged.columns
    compared = tuple(name for name in names[:-1] if name not in keys)
    within = {name: each for name, each in tolerance.items() if keys and name in compared}
    wish = Wish(staged.schema, keys, compared, within)
    found = compare(spark, numbered(staged), numbered(production), wish, rows=10)
    buckets, repeated, columns, twice = expected(ours, theirs, names, wish)
    assert found.buckets == buckets
    assert found.repeated == repeated
    assert not found.columns or found.columns == columns
    assert found.duplicate_keys_in_other == twice


@pytest.mark.parametrize("keys", [[], ["kafka", "sizes", "ratio"]])
def test_values_of_every_type_are_equal_to_themselves(
    spark: SparkSession,
    lake: Catalog,
    tmp_path: Path,
    keys: list[str],
) -> None:
    rows = rows_of_every_type()
    run, output = staged_and_production(lake, rows, rows, tmp_path, keys=keys)
    compared = compare_output(spark.newSession(), run, output, Clues())
    assert not compared.problem
    assert (compared.matching, compared.different, compared.missing, compared.extra) == (2, 0, 0, 0)


def test_values_of_every_type_differ_from_nothing(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    full, empty = rows_of_every_type().slice(0, 1), rows_of_every_type().slice(1, 1)
    place = EVERY_TYPE.get_field_index("user")
    keyed = empty.set_column(place, EVERY_TYPE.field(place), full.column(place))
    run, output = staged_and_production(lake, keyed, full, tmp_path, keys=["user"])
    compared = compare_output(spark.newSession(), run, output, Clues())
    assert (compared.matching, compared.different) == (0, 1)
    report = json.loads(Path(compared.report).with_suffix(".json").read_bytes())
    differing = {name for name, pairs in report["byColumn"].items() if pairs}
    assert differing == {name for name in FULL if FULL[name] != EMPTY[name]} - {"user"}
    (sample,) = report["samples"]
    assert {sample["result"][name] for name in differing} == {None}
    assert sample["production"]["tags"] == '["a",null]'
    assert sample["production"]["payload"] == "00ff"
    assert sample["production"]["sizes"] == '{"s":7,"none":null}'


SOME = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("amount", pa.float64()),
        ("seen", pa.timestamp("us")),
        ("written", pa.string()),
    ]
)


def some(*rows: tuple[int, float, float | None, float, str]) -> pa.Table:
    """Rows by id, hours after the start, amount, seconds when seen, and who has written them."""
    found = [
        {
            "id": number,
            "at": START + timedelta(hours=hours),
            "amount": amount,
            "seen": (START + timedelta(seconds=seen)).replace(tzinfo=None),
            "written": by,
        }
        for number, hours, amount, seen, by in rows
    ]
    return pa.Table.from_pylist(found, schema=SOME)


def test_a_reader_of_the_report_sees_which_rows_differ_and_in_what(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    staged = some(
        (1, 0, 1.0, 0, "us"),
        (2, 0.5, 2.004, 3, "us"),  # within the tolerances
        (3, 1, 3.02, 0, "us"),  # too far
        (4, 1, None, 20, "us"),  # another null, and seen too late
        (5, 2, 5.0, 0, "<script>alert(1)</script>"),  # only here
        (7, 3, 7.0, 0, "us"),
        (7, 3, 7.0, 0, "us"),  # twice
        (8, 24, 8.0, 0, "us"),  # after the window
    )
    production = some(
        (1, 0, 1.0, 0, "them"),
        (2, 0.5, 2.0, 0, "them"),
        (3, 1, 3.0, 0, "them"),
        (4, 1, 4.0, 0, "them"),
        (6, 2, 6.0, 0, "them"),  # only there
        (7, 3, 7.0, 0, "them"),
        (9, -1, 9.0, 0, "them"),  # before the window
    )
    validate = {
        "keys": ["id"],
        "ignore": ["written"],
        "tolerance": {"amount": "0.01", "seen": "5s"},
    }
    run, output = staged_and_production(lake, staged, production, tmp_path, **validate)
    compared = compare_output(spark.newSession(), run, output, Clues())
    assert (compared.matching, compared.different) == (3, 2)
    assert (compared.missing, compared.extra) == (1, 2)
    assert percentage(compared) == "37.5"
    report = json.loads(Path(compared.report).with_suffix(".json").read_bytes())
    assert report["rows"] == {
        "result": 7,
        "production": 6,
        "matching": 3,
        "different": 2,
        "missing": 1,
        "extra": 2,
    }
    assert report["byColumn"] == {"at": 0, "amount": 2, "seen": 1}
    assert report["duplicateKeys"] == {"result": 1, "production": 0}
    losses = report["losses"]
    assert (losses["productionRows"], losses["resultRows"], losses["stretches"]) == (6, 7, [])
    assert [each["start"][11:13] for each in report["byTime"]] == ["00", "01", "02", "03"]
    samples = {
        (each["kind"], (each["result"] or each["production"])["id"]) for each in report["samples"]
    }
    pairs = {("different", "3"), ("different", "4")}
    assert samples == {*pairs, ("missing", "6"), ("extra", "5"), ("extra", "7")}
    four = next(
        each for each in report["samples"] if each["result"] and each["result"]["id"] == "4"
    )
    assert (four["result"]["amount"], four["production"]["amount"]) == (None, "4.0")


def test_a_reader_of_the_report_sees_which_rows_publishing_would_remove(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    production = some(*((number, number / 600, 1.0, 0, "us") for number in range(1_200)))
    staged = some(*((number, number / 600, 1.0, 0, "us") for number in range(600, 1_200)))
    run, output = staged_and_production(lake, staged, production, tmp_path, keys=["id"])
    compared = compare_output(spark.newSession(), run, output, Clues())
    losses = json.loads(Path(compared.report).with_suffix(".json").read_bytes())["losses"]
    assert (losses["productionRows"], losses["resultRows"], losses["maxLoss"]) == (1200, 600, "20")
    assert [
        (each["start"][11:16], each["end"][11:16], each["productionRows"], each["exceedsMaxLoss"])
        for each in losses["stretches"]
    ] == [("00:00", "01:00", 600, True)]
    page = Path(compared.report).read_text()
    assert "publish.maxLoss is 20 %" in page and "exceeds maxLoss" in page


def test_a_sample_shows_microseconds_within_a_row_and_where_a_text_is_cut(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    moment = pa.timestamp("us", "UTC")
    staged, production = (
        pa.table(
            {
                "id": [1],
                "at": pa.array([START], moment),
                "of": pa.array(
                    [{"seen": START + timedelta(microseconds=us)}], pa.struct([("seen", moment)])
                ),
                "note": ["x" * 200 + end],
            }
        )
        for us, end in ((1, ""), (2, "y"))
    )
    run, output = staged_and_production(lake, staged, production, tmp_path, keys=["id"])
    compared = compare_output(spark.newSession(), run, output, Clues())
    report = json.loads(Path(compared.report).with_suffix(".json").read_bytes())
    (sample,) = report["samples"]
    assert sample["differs"] == ["of", "note"]
    assert sample["result"]["of"] == '{"seen":"2021-07-11T00:00:00.000001Z"}'
    assert sample["production"]["of"] == '{"seen":"2021-07-11T00:00:00.000002Z"}'
    assert (sample["result"]["note"], sample["production"]["note"]) == ("x" * 200, "x" * 200 + "…")


def nested(number: pa.DataType, ratio: pa.DataType) -> pa.DataType:
    parts = {"a": number, "b": pa.list_(number), "c": pa.map_(pa.string(), ratio)}
    return pa.struct(list(parts.items()))


def test_a_reference_of_other_types_is_compared_by_what_both_have(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    staged = some(
        (1, 0, 1.5, 0, "us"),
        (2, 1, 2.5, 0, "us"),  # another amount
        (3, 23.5, 3.5, 0, "us"),  # only here
        (5, 24, 5.5, 0, "us"),  # after the window
    )
    deep = [{"a": 1, "b": [1, None], "c": {"x": 0.5}}, None, None, None]
    staged = staged.append_column("deep", pa.array(deep, nested(pa.int32(), pa.float32())))
    reference = pa.table(
        {
            "note": pa.array([{"by": "batch"}] * 4),
            "id": pa.array([1, 2, 4, 6], pa.int32()),
            "amount": pa.array([1.5, 2.0, 4.5, 6.5], pa.float32()),
            "seen": pa.array([START] * 4, pa.timestamp("us", "UTC")),
            "deep": pa.array(deep, nested(pa.int64(), pa.float64())),
            "written": pa.array([7] * 4),
            "region": pa.array(["eu", "us", "us", None]),
            "epoch.ms": pa.array(
                [int(START.timestamp() * 1_000) + 3_600_000 * hour for hour in (0, 1, 2, 24)]
            ),
        }
    )
    lake.create_namespace("audit")
    audited = lake.create_table("audit.events", schema=reference.schema)
    with audited.update_spec() as changed:
        changed.add_identity("region")  # not compared
    audited.append(reference)
    wish = {
        "against": "Reference",
        "reference": {
            "table": "lake.audit.events",
            "timestampColumn": "epoch.ms",
            "timestampUnit": "ms",
        },
        "ignore": ["at", "written"],
    }
    run, output = staged_and_production(
        lake, staged, staged.slice(0, 0), tmp_path, keys=["id"], **wish
    )
    compared = compare_output(spark.newSession(), run, output, Clues())
    assert not compared.problem
    assert (compared.matching, compared.different) == (1, 1)
    assert (compared.missing, compared.extra) == (1, 1)
    read = audited.refresh().metadata.current_snapshot_id
    assert (compared.reference, compared.snapshot_id) == ("lake.audit.events", read)
    report = json.loads(Path(compared.report).with_suffix(".json").read_bytes())
    assert report["referenceSnapshotId"] == read
    assert report["columnsOnlyInReference"] == ["note", "region", "epoch.ms"]
    assert report["byColumn"] == {"amount": 1, "seen": 0, "deep": 0}
    assert [each["start"][11:13] for each in report["byTime"]] == ["00", "01", "02", "23"]
    different, missing, extra = report["samples"]
    assert (different["result"]["amount"], different["reference"]["amount"]) == ("2.5", "2.0")
    assert (missing["reference"]["id"], extra["result"]["id"]) == ("4", "3")
    lake.drop_table("audit.events")
    gone = compared_by_a_driver(spark, run)
    assert gone.reference == "lake.audit.events"
    assert gone.problem.startswith("spec.outputs[0].validate.reference.table: table lake.audit.ev")
    wish["reference"] = {"table": "elsewhere.audit.events"}
    asked = {**output.to_manifest(), "validate": {**wish, "keys": ["id"]}}
    unknown = run.model_copy(update={"outputs": (Output.model_validate(asked),)})
    assert "elsewhere" in compared_by_a_driver(spark, unknown).problem


@pytest.mark.parametrize(
    ("validate", "kind"),
    [
        ({"keys": ["id"]}, "missing"),
        ({"ignore": ["at"]}, "missing"),
        ({"keys": ["id"]}, "extra"),
    ],
)
def test_rows_with_one_key_at_several_times_are_counted_and_shown(
    spark: SparkSession,
    lake: Catalog,
    tmp_path: Path,
    validate: dict[str, list[str]],
    kind: str,
) -> None:
    both = some((1, 0, 1.0, 0, "us"))
    more = some((1, 0, 1.0, 0, "us"), (2, 1, 2.0, 0, "us"), (2, 5, 2.0, 0, "us"))
    sides = (both, more) if kind == "missing" else (more, both)
    run, output = staged_and_production(lake, *sides, tmp_path, **validate)
    compared = compare_output(spark.newSession(), run, output, Clues())
    assert (compared.matching, compared.different) == (1, 0)
    assert getattr(compared, kind) == 2
    report = json.loads(Path(compared.report).with_suffix(".json").read_bytes())
    assert {each["kind"] for each in report["samples"]} == {kind}
    assert sum(each[kind] for each in report["byTime"]) == 2


def test_of_a_key_that_occurs_twice_the_rows_that_the_other_side_lacks_are_shown(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    staged = some((1, 0, 1.0, 0, "us"), (1, 5, 2.0, 0, "us"), (2, 1, 7.0, 0, "us"))
    production = some((1, 0, 1.0, 0, "us"), (1, 6, 2.001, 0, "us"))
    production = pa.concat_tables([production, some(*[(2, 1, 7.0, 0, "us")] * 2)])
    wish = {"keys": ["id"], "ignore": ["at"], "tolerance": {"amount": "0.01"}}
    run, output = staged_and_production(lake, staged, production, tmp_path, **wish)
    compared = compare_output(spark.newSession(), run, output, Clues())
    assert (compared.matching, compared.different) == (2, 1), "tolerances are for single rows"
    assert (compared.missing, compared.extra) == (1, 0)
    report = json.loads(Path(compared.report).with_suffix(".json").read_bytes())
    assert set(report["byColumn"].values()) == {0}, "pairs of unique keys only"
    assert [each["repeated"]["missing"] for each in report["byTime"] if each["missing"]] == [1]
    different, missing = report["samples"]
    assert (different["kind"], missing["kind"]) == ("different", "missing")
    assert (different["result"]["amount"], different["production"]["amount"]) == ("2.0", "2.001")
    assert different["differs"] == ["amount"]
    assert (missing["result"], missing["production"]["id"]) == (None, "2")


def test_rows_are_found_again_by_their_numbers_wherever_they_are(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    at = pa.timestamp("us", "UTC")
    schema = pa.schema([("id", pa.int64()), ("at", at)])
    groups = {"write.parquet.row-group-limit": "100000"}
    table = lake.create_table("raw.many", schema=schema, properties=groups)
    for first in (0, 150_000, 300_000):
        ids = pa.array(range(first, first + 150_000))
        table.append(pa.table([ids, pa.nulls(150_000, at)], schema=schema))
    output = Output.model_validate({"name": "many", "table": "lake.raw.many"})
    files = sorted(table.scan().plan_files(), key=lambda task: task.file.file_path, reverse=True)
    deletes = position_deletes(
        tmp_path / "deletes", [(files[0].file.file_path, place) for place in (0, 70_000)]
    )
    first, *others = (
        tuple(
            replace(split, deletes=(deletes,)) if task is files[0] else split
            for split in splits_of(table, "many", task)
        )
        for task in files
    )
    assert len(first) == 2
    tasks = [first, others[0] + others[1]]
    described = source_table(table, output, None, None)
    numbered = NumberedRows(spark, described, tasks)
    numbers = {row["id"]: row[NUMBER] for row in numbered.all().select("id", NUMBER).collect()}
    (start,) = {*range(0, 450_000, 150_000)} - {*numbers}
    assert {*range(450_000)} - {*numbers} == {start, start + 70_000}
    assert len({*numbers.values()}) == len(numbers)
    places = (1, 65_535, 65_536, 69_999, 70_001, 99_999, 100_000, 149_999)
    wanted = {start + place for place in places} | {(start + 170_000) % 450_000}
    chosen = spark.createDataFrame(
        [(numbers[each], each) for each in wanted], f"{NUMBER} bigint, x int"
    )
    found = numbered.chosen(chosen).select("id", "x").collect()
    assert sorted((row["id"], row["x"]) for row in found) == [
        (each, each) for each in sorted(wanted)
    ]
    assert numbered.chosen(chosen.limit(0)).count() == 0


def compared_by_a_driver(spark: SparkSession, run: RuntimeSettings) -> OutputComparison:
    """What a driver reports of its only output."""
    found: list[OutputComparison] = []
    driver: Any = SimpleNamespace(
        settings=run,
        queries=[SimpleNamespace(frame=SimpleNamespace(sparkSession=spark))],
        stopping=threading.Event(),
        tracker=SimpleNamespace(header=SimpleNamespace(sources=()), queries=()),
        compares=lambda output: None,
        compared=found.append,
    )
    assert compare_outputs(driver)
    (only,) = found
    return only


def test_a_file_that_is_gone_is_said_and_not_tried_again(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    rows = some((1, 0, 1.0, 0, "us"))
    run, _ = staged_and_production(lake, rows, rows, tmp_path, keys=["id"])
    (task,) = lake.load_table("raw.events").scan().plan_files()
    Path(task.file.file_path.removeprefix("file://")).unlink()
    found = compared_by_a_driver(spark, run)
    assert found.problem.startswith(f"{task.file.file_path} of lake.raw.events cannot be read")
    assert "restore the file" in found.problem


NUMBERS: list[tuple[pa.DataType, str, str, str, bool]] = [
    (pa.decimal128(38, 18), "1.0000000005", "1.0000000014", "0.0000000001", False),
    (pa.decimal128(38, 18), "1.0000000004", "1.0000000005", "0.0000000001", True),
    (pa.decimal128(38, 18), f"{10**19}.{'0' * 17}1", f"{10**19}", f"0.{'0' * 17}1", True),
    (pa.decimal128(38, 18), f"{10**19}.{'0' * 17}2", f"{10**19}", f"0.{'0' * 17}1", False),
    (pa.decimal128(38, 0), f"{10**37 + 1}", f"{10**37}", "1.5", True),
    (pa.decimal128(38, 0), f"{10**37 + 2}", f"{10**37}", "1.5", False),
    (pa.decimal128(9, 2), "1.01", "1.00", "0.01", True),
    (pa.decimal128(9, 2), "1.02", "1.00", "0.019", False),
    (pa.int64(), str(2**63 - 1), str(-(2**63)), str(10**18 - 1), False),
    (pa.int64(), str(2**63 - 1), str(2**63 - 2), "1", True),
    (pa.int32(), "3", "1", "1.999", False),
]
"""A type, two values, a tolerance, and whether they are equal then."""


def test_a_tolerance_of_exact_numbers_is_exact(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    sides: list[dict[str, pa.Array]] = [
        {"id": pa.array([1]), "at": pa.array([START], pa.timestamp("us", "UTC"))} for _ in range(2)
    ]
    for number, (kind, *values, _, _) in enumerate(NUMBERS):
        exact = int if pa.types.is_integer(kind) else Decimal
        for side, value in zip(sides, values, strict=True):
            side[f"n{number}"] = pa.array([exact(value)], kind)
    tolerance = {f"n{number}": case[3] for number, case in enumerate(NUMBERS)}
    run, _ = staged_and_production(
        lake, *map(pa.table, sides), tmp_path, keys=["id"], tolerance=tolerance
    )
    compared = compared_by_a_driver(spark, run)
    assert compared.different == 1
    report = json.loads(Path(compared.report).with_suffix(".json").read_bytes())
    assert [not report["byColumn"][f"n{n}"] for n in range(len(NUMBERS))] == [
        equal for *_, equal in NUMBERS
    ]
