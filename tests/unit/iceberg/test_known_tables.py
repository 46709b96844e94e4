"""Tables of all catalogs, by the names that programs write."""

import pyarrow as pa
from pyiceberg.catalog import Catalog

from backfill.iceberg.table_listing import KnownTables


def test_a_name_without_its_catalog_is_found_but_a_full_name_counts_first(lake: Catalog) -> None:
    lake.create_namespace("lake")
    lake.create_namespace("lake.raw")
    for name in ("raw.clicks", "lake.raw.clicks", "raw.orders"):
        lake.create_table(name, pa.schema([("id", pa.int64())]))
    tables = KnownTables(lambda: ["lake"])
    assert tables.find("`raw`.`Orders`") == "lake.raw.orders"
    assert tables.find("lake.raw.clicks") == "lake.raw.clicks"
    assert tables.find("orders") is None


def test_tables_that_a_backfill_cannot_name_are_not_proposed(lake: Catalog) -> None:
    for name in ("clicks", "my clicks", "größe"):
        lake.create_table(("raw", name), pa.schema([("id", pa.int64())]))
    tables = KnownTables(lambda: ["lake"])
    assert tables.names == ("lake.raw.clicks", "lake.raw.größe")
    assert tables.problems == [
        "catalog lake has tables that a Backfill cannot refer to, such as 'raw.my clicks'"
    ]
