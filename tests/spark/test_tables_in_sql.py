"""Whatever an SQL text reads from a static table, it reads from the snapshot of the plan, and what
it writes or chooses itself stays as it is.
"""

import pytest
from pyspark.sql import SparkSession

from backfill.runtime.catalyst import parsed
from backfill.runtime.spark_versions import SPARK
from backfill.runtime.switching.tables_in_sql import with_views

TABLES = {("lake", "crm", "c"), ("lake", "erp", "c")}


def view(parts: tuple[str, ...]) -> tuple[str, ...] | None:
    full = tuple(part.lower() for part in (("lake", *parts) if len(parts) == 2 else parts))
    return full if full in TABLES else None


VALUES = {"name": "lake.erp.c"}
CASES: list[tuple[str, str]] = [
    ("select * from lake.crm.c x", "select * from `lake.crm.c` x"),
    (
        "select 'é😀', lake.crm.c.y from `lake`.crm.c",
        "select 'é😀', `c`.`y` from `lake.crm.c` AS `c`",
    ),
    (
        "with a as (select lake.crm.c.*, 1 from lake.crm.c) select (select max(crm.c.x) from crm.c)"
        " from a where exists (select 1 from crm.other) and z in (select q from lake . crm . /**/ c)",
        "with a as (select `c`.*, 1 from `lake.crm.c` AS `c`) select (select max(`c`.`x`) from"
        " `lake.crm.c` AS `c`) from a where exists (select 1 from crm.other) and z in (select q"
        " from `lake.crm.c` AS `c`)",
    ),
    (
        "select lake.crm.C.a.`b.c`, c.* from crm.c join e on c.x = crm.c.x order by CRM.c.r",
        "select `c`.`a`.`b.c`, c.* from `lake.crm.c` AS `c` join e on c.x = `c`.`x` order by `c`.`r`",
    ),
    (
        "select crm.c.k, erp.c.* from lake.crm.c join lake.erp.c on crm.c.k = lake.erp.c.k",
        "select `lake.crm.c`.`k`, `lake.erp.c`.* from `lake.crm.c` AS `lake.crm.c` join `lake.erp.c`"
        " AS `lake.erp.c` on `lake.crm.c`.`k` = `lake.erp.c`.`k`",
    ),
    (
        "select lake.crm.c.k from lake.crm.c join lake.hr.c using (k)",
        "select `lake.crm.c`.`k` from `lake.crm.c` AS `lake.crm.c` join lake.hr.c using (k)",
    ),
    (
        "merge into lake.crm.c using (select k, 1 x from lake.crm.c) s on lake.crm.c.k = s.k"
        " when matched then update set lake.crm.c.x = s.x, lake.crm.c.k = s.k",
        "merge into lake.crm.c using (select k, 1 x from `lake.crm.c` AS `c`) s on lake.crm.c.k = s.k"
        " when matched then update set lake.crm.c.x = s.x, lake.crm.c.k = s.k",
    ),
    (
        "merge into out t using lake.crm.c on t.k = lake.crm.c.k when matched then update set"
        " t.x = lake.crm.c.x, k = crm.c.k",
        "merge into out t using `lake.crm.c` AS `c` on t.k = `c`.`k` when matched then update set"
        " t.x = `c`.`x`, k = `c`.`k`",
    ),
    (
        "select * from identifier('lake.crm.c') join identifier(:name) d on d.x = c.x",
        "select * from `lake.crm.c` AS `c` join `lake.erp.c` d on d.x = c.x",
    ),
    (
        "select sum(d) over (partition by crm.c.y) from crm.c as s (a, b)",
        "select sum(d) over (partition by crm.c.y) from `lake.crm.c` as s (a, b)",
    ),
    (
        "-- lake.crm.c\nselect 'lake.crm.c.x' from e left join crm.c on e.a = crm.c.a",
        "-- lake.crm.c\nselect 'lake.crm.c.x' from e left join `lake.crm.c` AS `c` on e.a = `c`.`a`",
    ),
    (
        "select * from lake.crm.c tablesample (10 percent) order by x",
        "select * from `lake.crm.c` tablesample (10 percent) order by x",
    ),
    (
        "select * from lake.crm.c TABLESAMPLE (10 rows)",
        "select * from `lake.crm.c` TABLESAMPLE (10 rows)",
    ),
    ("table lake.crm.c order by k", "table `lake.crm.c` order by k"),
    ("create temp view z as table crm.c", "create temp view z as table `lake.crm.c`"),
    ("select * from f(table(lake.crm.c))", "select * from f(table(`lake.crm.c`))"),
    ("uncache table lake.crm.c", "uncache table `lake.crm.c`"),
    ("table lake.crm.c", "table `lake.crm.c`"),
    ("cache table lake.crm.c", "cache table `lake.crm.c`"),
    (
        "create temp view v as select * from e, lateral (select * from lake.crm.c)",
        "create temp view v as select * from e, lateral (select * from `lake.crm.c` AS `c`)",
    ),
    (
        "merge into lake.crm.c t using lake.crm.c on t.a = c.a when matched then delete",
        "merge into lake.crm.c t using `lake.crm.c` AS `c` on t.a = c.a when matched then delete",
    ),
    (
        "insert into lake.crm.c select * from lake.crm.c",
        "insert into lake.crm.c select * from `lake.crm.c` AS `c`",
    ),
    (
        "from lake.crm.c insert into x select a insert into y select b",
        "from `lake.crm.c` AS `c` insert into x select a insert into y select b",
    ),
    (
        "delete from lake.crm.c where a in (select a from lake.crm.c)",
        "delete from lake.crm.c where a in (select a from `lake.crm.c` AS `c`)",
    ),
    (
        "update lake.crm.c set a = (select max(a) from lake.crm.c)",
        "update lake.crm.c set a = (select max(a) from `lake.crm.c` AS `c`)",
    ),
]
THE_SAME = (
    "with c as (select 1 a), e as (select * from c) select c.a from c join e on c.a = e.a",
    "uncache table c",
    "table c order by a",
    "select * from lake.crm.c version as of 5 d",
    "select * from lake.crm.c timestamp as of '2026-01-01'",
    "describe lake.crm.c",
    "refresh table lake.crm.c",
    "show columns from lake.crm.c",
    "select lake.crm.c.x from lake.crm.other",
    *(("select * from lake.crm.c with (`split-size` 5)",) if SPARK >= (4, 0) else ()),
)


@pytest.mark.parametrize(("text", "read"), [*CASES, *((text, text) for text in THE_SAME)])
def test_static_tables_are_read_by_their_views(spark: SparkSession, text: str, read: str) -> None:
    assert with_views(text, spark, view, VALUES) == read
    parsed(spark, read)
