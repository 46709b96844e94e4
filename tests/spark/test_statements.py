"""Which SQL statements a main program may run by itself."""

from types import SimpleNamespace
from typing import Any

import pytest
from applications import IN_THE_SESSION
from pyspark.sql import SparkSession
from pyspark.sql.catalog import Catalog

from backfill.api.errors import UnsupportedProgram
from backfill.runtime.queries.run_state import ProgramRun
from backfill.runtime.switching import sql_statements
from backfill.runtime.switching.main_program_writes import MainProgram

READING = (
    "select 1 as a",
    "with x as (select 1 as a) select * from x where a = :least",
    "from x select count(*) limit 1",
    "values (1)",
    "explain insert into dim select 1",
    "show create table dim",
    "describe extended dim",
    "create table if not exists lake.db.dim (a int) using iceberg partitioned by (a)",
    "create schema if not exists lake.db",
    "drop view if exists nothing",
    "select * from identifier(:table) where a = 1",
    "create table if not exists identifier(:table) (a int)",
    "add jar x.jar",
    "add file x.txt",
    "this is not sql",
)
WRITING = (
    "insert into dim values (1)",
    "insert overwrite dim partition (day = 1) select 1",
    "with x as (select 1 as a) insert into dim select * from x",
    "from x insert into dim select a insert into other select a",
    "merge into dim t using x s on t.a = s.a when matched then delete",
    "update dim set a = 1",
    "delete from dim where a = 1",
    "create table dim as select 1 as a",
    "create table if not exists dim as select 1 as a",
    "create or replace table dim (a int)",
    "create table dim (a int)",
    "create or replace view dim as select 1 as a",
    "alter table dim add column b int",
    "drop table if exists dim",
    "drop database x cascade",
    "truncate table dim",
    "call lake.system.expire_snapshots(table => 'db.dim')",
    "insert overwrite directory '/nowhere' using parquet select 1",
    "execute immediate 'drop table dim'",
    "begin insert into dim values (1); end",
    "insert into identifier(:table) select 1",
    "with x as (select 1 as a) insert into identifier(lower('DIM')) select * from x",
    "create table identifier(:table) as select 1 as a",
    "create or replace view identifier(:table) as select 1 as a",
    "drop table identifier(:table)",
    "drop view if exists identifier(:table)",
    "drop view if exists lake.db.nothing",
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ProgramRun:
    table = SimpleNamespace(table="lake.marts.results")
    settings: Any = SimpleNamespace(
        allowed_effects=(), ignored_queries=("others",), sources=(), outputs=(table,)
    )
    run = ProgramRun(settings)
    monkeypatch.setattr(sql_statements, "_program", MainProgram(run))
    return run


def test_statements_that_write_nothing_outside_the_session_may_run(
    spark: SparkSession, run: ProgramRun
) -> None:
    for text in READING:
        assert sql_statements._may_run(spark, text, {}), text
    for text in IN_THE_SESSION:
        assert sql_statements._may_run(spark, text, {}), text
        spark.sql(text)
    assert run.outcome is None


def test_others_are_refused(spark: SparkSession, run: ProgramRun) -> None:
    passed = []
    for text in WRITING:
        try:
            sql_statements._may_run(spark, text, {})
            passed.append(text)
        except UnsupportedProgram as error:
            assert "add Statements to spec.allowedEffects" in str(error), text
    assert passed == []
    assert run.outcome is not None


def test_inserts_and_merges_may_be_left_out(spark: SparkSession, run: ProgramRun) -> None:
    merge = "when not matched then insert *"
    assert not sql_statements._may_run(spark, "insert overwrite lake.db.others select 1", {})
    assert not sql_statements._may_run(
        spark, f"merge into others t using x on t.a = x.a {merge}", {}
    )
    from_rows = "insert into others select * from {rows}"
    views = spark.sql("SHOW VIEWS").count()
    assert not sql_statements._may_run(spark, from_rows, {"rows": spark.range(1)})
    assert spark.sql("SHOW VIEWS").count() == views, "the view in place of the rows is gone"
    assert run.outcome is None


def test_what_the_backfill_has_is_not_created_in_a_catalog_that_spark_does_not_know(
    spark: SparkSession, run: ProgramRun
) -> None:
    for text in (
        "create table if not exists lake.marts.results (a int) using iceberg",
        "create table if not exists `Marts`.`results` (a int)",
        "create table if not exists lake.marts.results as select 1 as a",
        "create schema if not exists lake.marts",
        "create namespace if not exists marts",
    ):
        assert not sql_statements._may_run(spark, text, {}), text
    assert run.outcome is None
    for text in (
        "create table lake.marts.results (a int)",
        "create or replace table lake.marts.results (a int)",
    ):
        with pytest.raises(UnsupportedProgram):
            sql_statements._may_run(spark, text, {})


def test_a_program_may_enter_a_catalog_of_the_backfill_that_spark_does_not_know(
    spark: SparkSession, run: ProgramRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or programs that begin with ``USE`` run only where the image has the catalog."""
    for kind, names in {
        SparkSession: ("sql",),
        Catalog: (*sql_statements._OF_CATALOGS, "tableExists", "databaseExists"),
    }.items():
        for name in (*names, "setCurrentCatalog", "setCurrentDatabase"):
            if hasattr(kind, name):
                monkeypatch.setattr(kind, name, getattr(kind, name))  # as it is afterwards
    monkeypatch.setattr(sql_statements, "_program", None)
    sql_statements.watch_statements(MainProgram(run))
    for place in ("lake", "marts", "lake.marts", "namespace marts"):
        spark.sql(f"USE {place}")
    spark.catalog.setCurrentCatalog("lake")
    spark.catalog.setCurrentDatabase("marts")
    assert spark.catalog.currentDatabase() == "default"
    for statement in ("USE elsewhere", "SELECT * FROM marts.results"):
        with pytest.raises(Exception, match=r"NOT_FOUND|not found"):
            spark.sql(statement).collect()
    with pytest.raises(Exception, match=r"NOT_FOUND|not found"):
        spark.catalog.setCurrentDatabase("elsewhere")
    assert run.outcome is None
