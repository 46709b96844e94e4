"""A comparison says how a correction has changed values, if it changed nearly all in one way."""

import json
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from compared_tables import staged_and_production
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from backfill.runtime.comparison.compare_outputs import compare_output
from backfill.runtime.comparison.report import Clues
from cases import cases
from comparison_reports import START

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("revenue", pa.decimal128(12, 2)),
        ("total", pa.decimal128(38, 6)),
        ("tiny", pa.decimal128(38, 30)),
        ("millis", pa.int64()),
        ("plays", pa.int32()),
        ("watched", pa.float64()),
        ("score", pa.float32()),
        ("seen", pa.timestamp("us")),
        ("day", pa.date32()),
        ("title", pa.string()),
        ("alias", pa.string()),
        ("views", pa.int32()),
        ("tags", pa.map_(pa.string(), pa.int32())),
    ]
)
ROWS = 200
MOST = Decimal(f"-{'9' * 32}.{'9' * 6}")
"""Negative, and with all digits that Spark has: its abs would round it."""


def production() -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "at": START + timedelta(minutes=5 * number),
            "revenue": Decimal(number + 1) / 2,
            "total": Decimal(7 * number + 2) / 8,
            "tiny": Decimal(number + 1).scaleb(-30),
            "millis": 10**12 + 1_000 * number,
            "plays": number + 10,
            "watched": 0.1 + number / 3,
            "score": 0.1 + number / 3,
            "seen": (START + timedelta(seconds=number)).replace(tzinfo=None),
            "day": date(2021, 7, 1) + timedelta(days=number % 9),
            "title": f"Title {number}",
            "alias": f"alias {number}",
            "views": 3 * number + 1_000,
            "tags": [("a", number)],
        }
        for number in range(ROWS)
    ]


class Compared:
    """Compares the rows of production with what a correction makes of them."""

    def __init__(self, spark: SparkSession, lake: Catalog, directory: Path):
        self._spark, self._lake, self._directory = spark, lake, directory

    def __call__(
        self, correct: Callable[[dict[str, Any]], Mapping[str, Any]], **validate: Any
    ) -> dict[str, Any]:
        before = production()
        after = [{**row, **correct(row)} for row in before]
        run, output = staged_and_production(
            self._lake,
            *(pa.Table.from_pylist(rows, schema=SCHEMA) for rows in (after, before)),
            self._directory,
            **({"keys": ["id"]} | validate),
        )
        spark = self._spark.newSession()
        spark.conf.set("spark.sql.ansi.enabled", "true")
        compared = compare_output(spark, run, output, Clues())
        assert not compared.problem
        report = Path(compared.report).with_suffix(".json")
        document: dict[str, Any] = json.loads(report.read_bytes())
        assert compared.causes == tuple(document["causes"][:8])
        return document


@pytest.fixture
def compared(spark: SparkSession, lake_of_workers: Catalog, tmp_path: Path) -> Compared:
    return Compared(spark, lake_of_workers, tmp_path)


def changed(report: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """By column, the kind of change, what it is by, and in how many rows."""
    by = ("factor", "offset", "shiftSeconds", "fromColumn")
    return {
        each["column"]: (each["kind"], *(each[name] for name in by if name in each), each["rows"])
        for each in report["changes"]
    }


def test_values_of_every_type_are_known_to_be_changed_in_one_way(compared: Compared) -> None:
    report = compared(
        lambda row: {
            "revenue": row["revenue"] / 2,
            "total": -row["total"],
            "tiny": row["tiny"] * 2,
            "millis": row["millis"] // 1_000,
            "plays": 3 * row["plays"],
            "watched": row["watched"] / 60,
            "score": row["score"] * 1.19,
            "seen": row["seen"] - timedelta(hours=2),
            "day": row["day"] + timedelta(days=1),
            "title": f" {row['title'].upper()}",
            "alias": row["title"],
            "tags": None,
        }
    )
    assert changed(report) == {
        "revenue": ("factor", "0.5", 200),
        "total": ("factor", "-1", 200),
        "millis": ("factor", "0.001", 200),
        "plays": ("factor", "3", 200),
        "watched": ("factor", "1/60", 200),
        "score": ("factor", "1.19", 200),
        "seen": ("shift", "-7200", 200),
        "day": ("shift", "86400", 200),
        "title": ("text", 200),
        "alias": ("column", "title", 200),
        "tags": ("becameNull", 200),
    }
    exact = {each["column"] for each in report["changes"] if not each["exact"]}
    assert exact == {"watched", "score"}
    assert not report["explained"], "tags are lost"
    assert "in tiny, in no single way" in report["causes"][-1], "it has more digits than Spark's"


def test_changes_that_keep_no_ratio_are_known_too(compared: Compared) -> None:
    def correct(row: dict[str, Any]) -> dict[str, Any]:
        number = row["id"]
        return {
            "revenue": row["revenue"] + Decimal("0.25"),
            "total": 2 * row["total"] if number % 3 else MOST,
            "millis": row["millis"] // 60,  # rounded
            "plays": row["views"],
            "views": row["plays"],
            "watched": row["watched"] * (1 + 1e-13),
            "score": [float("nan"), float("inf"), None][number % 3],
            "seen": row["seen"] + timedelta(seconds=number),
            "title": None if number % 3 else f"{row['title']}!",
        }

    report = compared(correct)
    assert changed(report) == {
        "revenue": ("offset", "0.25", 200),
        "total": ("factor", "2", 133),
        "millis": ("factor", "1/60", 200),
        "plays": ("column", "views", 200),
        "views": ("column", "plays", 200),
        "watched": ("rounding", 200),
        "title": ("becameNull", 133),
    }
    assert "200 of 200 rows differ in plays: plays and views are swapped." in report["causes"]


def test_a_correction_is_explained_by_what_it_changed(compared: Compared) -> None:
    report = compared(lambda row: {"revenue": row["revenue"] * 2})
    assert (report["match"], report["reachesMinMatch"], report["explained"]) == ("0", False, True)
    assert report["causes"] == [
        "200 of 200 rows differ in revenue, and in no other column: the result is exactly 2 times"
        " production."
    ]
    assert report["commands"] == {
        "approve": 'backfill approve again --reason "..."',
        "reject": 'backfill reject again --reason "..."',
    }
    times = [each["result"]["at"] for each in report["samples"]]
    assert len(times) > 10
    assert times == sorted(times)


@cases(
    ("others", "rows", "explained"),
    {
        "two": (2, 198, True),
        "three": (3, 197, False),
        "a third": (66, 134, False),
        "two thirds": (132, None, False),
    },
)
def test_a_change_is_known_if_it_holds_for_half_and_explains_if_it_does_for_nearly_all(
    compared: Compared, others: int, rows: int | None, explained: bool
) -> None:
    def correct(row: dict[str, Any]) -> dict[str, Any]:
        number = row["id"]
        return {"plays": row["plays"] * 2 if number >= others else row["plays"] + 1_000 + number**2}

    report = compared(correct)
    assert changed(report) == ({} if rows is None else {"plays": ("factor", "2", rows)})
    assert report["explained"] == explained
    (cause,) = report["causes"]
    assert f" in {rows} of them." in cause if rows else "in no single way" in cause


def test_rows_that_are_only_on_one_side_are_beside_a_correction(compared: Compared) -> None:
    report = compared(
        lambda row: {
            "plays": row["plays"] * 2,
            "id": row["id"] + (1_000 if 24 <= row["id"] < 36 else 0),
        }
    )
    assert report["rows"]["different"] == 188
    assert not report["explained"]
    correction, middle = report["causes"]
    assert correction.startswith("188 of 188 rows differ in plays")
    assert middle.startswith(
        "All 24 rows that are only on one side are in the stretch from 2021-07"
    )


def test_without_keys_no_change_is_known_and_keys_are_advised(compared: Compared) -> None:
    report = compared(lambda row: {"plays": row["plays"] * 2}, keys=[], ignore=["tags"])
    assert (report["rows"]["different"], report["changes"], report["explained"]) == (0, [], False)
    (cause,) = report["causes"]
    assert "set validate.keys to see in which columns rows differ" in cause


def test_a_column_that_is_written_by_the_clock_is_to_be_ignored(compared: Compared) -> None:
    late = START + timedelta(days=9)
    report = compared(
        lambda row: {"seen": (late + timedelta(seconds=row["id"] ** 2 % 97)).replace(tzinfo=None)}
    )
    assert report["causes"] == [
        "seen looks like the time of writing, which differs from run to run: add it to"
        " validate.ignore."
    ]


def test_rows_within_a_tolerance_do_not_count(compared: Compared) -> None:
    report = compared(lambda row: {"plays": row["plays"] * 2}, tolerance={"plays": "109"})
    assert changed(report) == {"plays": ("factor", "2", 100)}
    assert report["causes"][0].startswith("100 of 200 rows differ in plays, and in no other")
