"""By which columns merges put rows in the place of others: only by columns of the table itself, since
the fields of one have names of their own.
"""

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.runtime.catalyst import frame_of
from backfill.runtime.switching.batch_statements import Statement, merge_of, statement_of

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


def merged(spark: SparkSession, tables: str, condition: str) -> Statement:
    text = f"MERGE INTO {tables} ON {condition} {UPSERT}"
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    found = statement_of(plan, spark)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("tables", "condition", "keys"),
    [
        ("db.plays t USING rows s", "t.id = s.id", ("id",)),
        ("db.plays t USING rows s", "T.Id <=> s.id AND s.`day` = t.day", ("Id", "day")),
        ("lake.db.plays USING rows", "plays.id = rows.id", ("id",)),
        ("lake.db.plays USING views.rows", "lake.db.plays.id = rows.id", ("id",)),
        ("lake.db.plays USING views.rows", "db.plays.id = views.rows.id", ("id",)),
        ("db.plays t USING (SELECT 1 AS id) s", "t.id = s.id", ("id",)),
        ("db.plays AS k USING rows s", "k.id = s.id", ("id",)),
        ("db.plays t USING rows s", "t.id = id", ("id",)),
    ],
)
def test_columns_are_keys(
    spark: SparkSession, tables: str, condition: str, keys: tuple[str, ...]
) -> None:
    found = merged(spark, tables, condition)
    assert (found.keys, found.problem) == (keys, "")


@pytest.mark.parametrize(
    ("tables", "condition", "named"),
    [
        ("db.plays t USING rows s", "t.k.id = s.k.id", "t.k.id"),
        ("db.plays t USING rows s", "t.a.id = s.b.id", "t.a.id"),
        ("db.plays t USING rows s", "t.day = s.day AND t.id = s.k.id", "s.k.id"),
        ("db.k USING s", "k.id = s.k.id", "s.k.id"),
        ("db.plays t USING rows s", "k.id = s.id", "k.id"),
        ("db.plays t USING rows s", "db.plays.id = s.id", "db.plays.id"),
        ("db.plays t USING (SELECT 1 AS id)", "t.id = x.id", "x.id"),
    ],
)
def test_fields_are_not(spark: SparkSession, tables: str, condition: str, named: str) -> None:
    found = merged(spark, tables, condition)
    assert found.keys == ()
    assert found.problem.startswith(
        f"joins by {named}, which does not begin with the name or alias"
    )


@pytest.mark.parametrize(
    "condition", ["t.id = t.id", "s.id = rows.id", "t.id = s.other", "t.id = 1"]
)
def test_other_conditions_are_not_by_columns(spark: SparkSession, condition: str) -> None:
    found = merged(spark, "db.plays t USING rows s", condition)
    assert found.keys == ()
    assert found.problem


SET_ALL = "UPDATE SET t.day = s.day, t.n = s.a + 1"
INSERT_ALL = "INSERT (id, day, n) VALUES (s.id, s.day, s.a + 1)"


@pytest.mark.parametrize(
    ("update", "insert", "problem"),
    [
        (SET_ALL, INSERT_ALL, ""),
        (f"{SET_ALL}, t.id = s.id", INSERT_ALL, ""),
        (
            "UPDATE SET DAY = s.day, n = s.a + 1",
            "INSERT (ID, n, day) VALUES (id, s.a + 1, day)",
            "",
        ),
        ("UPDATE SET t.day = s.day, t.a = s.a", "INSERT *", ""),
        ("UPDATE SET *", "INSERT (id, a, day) VALUES (s.id, s.a, s.day)", ""),
        (
            SET_ALL,
            "INSERT (id, day, n, made) VALUES (s.id, s.day, s.a + 1, now())",
            "inserts made but does not update it, so existing rows keep theirs",
        ),
        (SET_ALL, "INSERT (id, n) VALUES (s.id, s.a + 1)", "updates day but does not insert it"),
        (
            "UPDATE SET t.day = s.day, t.n = t.n + s.a",
            INSERT_ALL,
            "computes n from the row that is in the table",
        ),
        (
            "UPDATE SET t.day = s.day, t.n = s.a",
            INSERT_ALL,
            "sets n to one value when it inserts and another when it updates",
        ),
        (
            SET_ALL,
            "INSERT (id, day, n) VALUES (s.a, s.day, s.a + 1)",
            "inserts rows with other values of id than it compares",
        ),
        (f"{SET_ALL}, t.k.id = s.a", INSERT_ALL, "sets t.k.id, which is not a column of the table"),
        ("DELETE", INSERT_ALL, "does something other than"),
        (SET_ALL, f"{INSERT_ALL} WHEN NOT MATCHED BY SOURCE THEN DELETE", "does something other"),
    ],
)
def test_a_merge_that_sets_columns_is_redirected_only_if_it_puts_whole_rows_in_place_of_others(
    spark: SparkSession, update: str, insert: str, problem: str
) -> None:
    spark.sql("SELECT 1 AS id, 2 AS day, 3 AS a").createOrReplaceTempView("rows")
    text = (
        "MERGE INTO db.plays t USING rows s ON t.id = s.id"
        f" WHEN MATCHED THEN {update} WHEN NOT MATCHED THEN {insert}"
    )
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    found = statement_of(plan, spark)
    assert found is not None
    assert found.problem.startswith(problem) if problem else found.problem == ""
    if not problem:
        rows = frame_of(spark, found.rows)
        named = {"a": 3, "n": 4, "day": 2, "id": 1}
        assert rows.collect()[0].asDict() == {name: named[name.lower()] for name in rows.columns}
        assert found.keys == ("id",)


def test_frames_have_columns_by_the_names_in_their_plan(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS id, 2 AS day, named_struct('id', 3) AS k")

    def of(frame: DataFrame, condition: Column) -> Statement:
        merging = frame.mergeInto("lake.db.plays", condition)
        merging = merging.whenMatched().updateAll().whenNotMatched().insertAll()
        return merge_of(merging._jwriter.mergeCommand(), frame)

    named = rows.alias("s")
    assert of(named, F.expr("plays.id = s.id")).keys == ("id",)
    assert of(named.where("day > 1"), F.col("db.plays.id") == F.col("s.id")).keys == ("id",)
    assert of(rows, F.col("lake.db.plays.id") == rows["id"]).keys == ("id",)
    assert of(named, F.expr("plays.day = s.day") & (F.col("plays.id") == F.col("s.id"))).keys == (
        "day",
        "id",
    )
    for field in (F.expr("plays.k.id = s.k.id"), F.col("plays.id") == F.col("s.k.id")):
        assert of(named, field).keys == ()
    assert of(rows, F.col("plays.k.id") == rows["k.id"]).keys == ()
