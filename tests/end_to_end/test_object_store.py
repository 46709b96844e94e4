"""Tables and workspace in an object store, the catalog in PostgreSQL, and nothing told but what
PyIceberg is told.
"""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from production import DEADLINE_SECONDS, Production, ended
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config
from sqlalchemy import create_engine, make_url, text
from store_servers import ObjectStore, Programs, find_programs, object_store, postgresql

from backfill.api.catalog_properties import APPLICATION_CATALOGS_VARIABLE
from backfill.api.output import Publish, PublishMode
from backfill.iceberg.object_stores import store_properties
from backfill.iceberg.open_tables import Catalogs
from backfill.iceberg.spark_catalogs import open_catalogs_of
from backfill.iceberg.table_listing import KnownTables
from backfill.outputs.export import ExportUndo, export
from backfill.outputs.output_tables import check_outputs
from backfill.planning.workspace import Workspace
from histories import DAY_US, HOUR_US, UTC_TIME, land, query, sorted_rows, times
from staged import RESULT, WINDOW, make_table, output, stage
from waiting import eventually

ACCESS_KEY, SECRET_KEY, PASSWORD = (
    "AKBACKFILLTESTS",
    "secret-of-the-object-store",
    "password-of-the-database",
)
APPLICATION = """
from pyspark.sql import SparkSession, functions as F
from backfill.runtime import read_source, write_output

spark = SparkSession.builder.appName("hourly").getOrCreate()
clicks = read_source(spark, "clicks").withWatermark("seen", "1 minute")
hourly = clicks.groupBy(F.window("seen", "1 hour"), "page").agg(F.count("*").alias("clicks"))
hourly = hourly.select(F.col("window.start").alias("hour"), "page", "clicks")
hourly.explain(True)
print(spark.sparkContext.getConf().getAll())
spark.sql("SET -v").show(1000, truncate=False)
write_output(hourly, "hourly").awaitTermination()
"""
HOURS = 8

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def programs() -> Programs:
    """The servers' programs."""
    return find_programs()


@pytest.fixture
def store(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ObjectStore]:
    """An object store with the bucket ``lake``, whose keys are not among the AWS variables."""
    for variable in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    with object_store(programs, tmp_path, ACCESS_KEY, SECRET_KEY, "lake") as running:
        yield running


@pytest.fixture
def lake(
    programs: Programs, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Catalog]:
    """The catalog ``lake`` in PostgreSQL, as the environment tells PyIceberg."""
    with postgresql(programs, "iceberg", PASSWORD) as address:
        properties = {
            "TYPE": "sql",
            "URI": f"postgresql+psycopg2://iceberg:{PASSWORD}@{address}/postgres",
            "WAREHOUSE": "s3://lake/warehouse",
            "S3__ENDPOINT": store.endpoint,
            "S3__REGION": "us-east-1",
            "S3__ACCESS_KEY_ID": ACCESS_KEY,
            "S3__SECRET_ACCESS_KEY": SECRET_KEY,
        }
        for name, value in properties.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        catalog = load_catalog("lake")
        catalog.create_namespace("raw")
        yield catalog


def test_a_workspace_is_removed_at_once_from_a_store_that_keeps_directories(
    lake: Catalog, store: ObjectStore
) -> None:
    place = Workspace.below("s3://lake/backfills", lake.name, "default", "removed")
    for name in (
        "plans/3fa2/plan.json",
        "plans/3fa2/splits.parquet",
        "checkpoints/hourly/commits/0",
        "checkpoints/metadata",
    ):
        place.write(name, b"{}")
    place.child("plans").remove()
    assert place.names("plans") == []
    assert sorted(place.names("checkpoints")) == ["hourly", "metadata"]
    place.remove()
    assert not list((store.files / "lake" / "backfills").rglob("removed"))


@pytest.mark.parametrize("schema", ["V0", "V1"])
def test_a_catalog_that_only_sparks_properties_describe_is_read_and_written(
    lake: Catalog, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    rows = pa.table({"id": [1]}, schema=pa.schema([("id", pa.int64())]))
    lake.create_table("raw.ids", schema=rows.schema).append(rows)
    database = make_url(lake.properties["uri"])
    at = f"{database.host}:{database.port}/{database.database}"
    if schema == "V0":  # of Iceberg before 1.5
        with create_engine(database).begin() as connection:
            connection.execute(text("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type"))
    for name in [each for each in os.environ if each.startswith("PYICEBERG_CATALOG__LAKE__")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(APPLICATION_CATALOGS_VARIABLE, "")
    open_catalogs_of(
        {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "jdbc",
            "spark.sql.catalog.lake.uri": f"jdbc:postgresql://{at}",
            "spark.sql.catalog.lake.jdbc.user": "iceberg",
            "spark.sql.catalog.lake.jdbc.password": PASSWORD,
            "spark.sql.catalog.lake.warehouse": "s3a://lake/warehouse",
            "spark.hadoop.fs.s3a.endpoint": store.endpoint,
            "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
            "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
    )
    assert "lake.raw.ids" in KnownTables().names
    found = Catalogs().load_table("lake.raw.ids", "")
    found.append(rows)
    assert found.scan().to_arrow()["id"].to_pylist() == [1, 1]
    assert store_properties("lake") == {
        "s3.endpoint": store.endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
    }


def test_files_are_exported_to_a_store_and_taken_out_of_it_again(
    lake: Catalog, store: ObjectStore
) -> None:
    table = make_table(lake)
    stage(table, 0, [(1, 0), (2, HOUR_US)])
    stage(table, 1, [(3, HOUR_US)])
    place = "s3a://lake/out/plays"
    asked = output(publish=Publish(mode=PublishMode.EXPORT, location=place))
    assert check_outputs([asked], [replace(RESULT, uid="new")], WINDOW) == []
    told = export(asked, RESULT, None)
    assert (told.location, told.files, told.rows) == (place, 2, 3)
    files = store.files / "lake" / "out" / "plays"
    data = {path.name: path.read_bytes() for path in files.glob("*.parquet")}
    assert sum(map(len, data.values())) == told.bytes
    assert (files / "_SUCCESS").read_bytes() == b""
    for name in ("_SUCCESS", "_manifest.json", min(data)):  # as if it was killed before these
        (files / name).unlink()
    (files / max(data)).write_bytes(b"half")
    assert export(asked, RESULT, None) == told
    assert {path.name: path.read_bytes() for path in files.glob("*.parquet")} == data
    (problem,) = check_outputs([asked], [replace(RESULT, uid="new")], WINDOW)
    assert "contains 4 files that this Backfill has not written" in problem.message
    (files / "theirs").write_bytes(b"1")
    undo = ExportUndo(asked, RESULT)
    undo.check()
    undo.run()
    assert [path.name for path in files.rglob("*") if path.is_file()] == ["theirs"]


def test_a_killed_run_goes_on_from_its_checkpoint_in_the_store_and_no_credential_is_left_anywhere(
    lake: Catalog, store: ObjectStore, programs: Programs, tmp_path: Path
) -> None:
    random = np.random.default_rng(1)
    at = np.sort(random.integers(DAY_US, DAY_US + HOURS * HOUR_US, 4_000))
    clicks = pa.table({"page": pa.array(random.integers(0, 5, len(at))), "seen": times(at)})
    expected = query(
        "SELECT date_trunc('hour', seen) AS hour, page, count(*) AS clicks FROM clicks"
        " WHERE seen < TIMESTAMPTZ '2024-03-01 07:00Z' GROUP BY ALL",
        clicks=clicks,
    )
    land(lake.create_table("raw.clicks", clicks.schema), clicks, at, files=HOURS, seed=1)
    schema = pa.schema([("hour", UTC_TIME), ("page", pa.int64()), ("clicks", pa.int64())])
    lake.create_table("raw.hourly", schema)

    production = Production(tmp_path / "here", lake)
    production.directory.mkdir()
    production.describe(
        APPLICATION,
        execution="Streaming",
        window={"start": "2024-03-01T00:00:00Z", "end": "2024-03-01T07:00:00Z", "drain": "1h"},
        sources=[{"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "seen"}],
        maxMisalignment="2h",
        outputs=[
            {
                "name": "hourly",
                "table": "lake.raw.hourly",
                "timestampColumn": "hour",
                "publish": {"mode": "Append"},
            },
        ],
        workspace="s3://lake/backfills",
        overrides={
            "sparkConf": {
                "spark.master": "local[2,4]",
                "spark.driver.memory": "1g",
                "spark.jars": programs.spark_jars,
            }
        },
    )
    run = production.start_run()
    place = store.files / "lake" / "backfills" / "default" / "again"

    def two_batches() -> bool:
        assert run.poll() is None, production.driver_log()
        return len(list(place.glob("checkpoints/*/hourly/commits/[0-9]*"))) >= 2

    eventually(two_batches, production.driver_log, DEADLINE_SECONDS)
    attempt = production.store.attempts / "1"
    os.killpg(json.loads((attempt / "driver.json").read_text())["group"], signal.SIGKILL)
    end = ended(run)
    assert end.status == 0, f"{end.err}\n{production.driver_log()}"

    assert sorted_rows(production.output("raw.hourly")) == sorted_rows(expected)
    assert len(production.resource.status.attempts) == 2
    assert list(place.glob("plans/*/plan.json"))
    assert not list(production.state.rglob("checkpoints")), "checkpoints are in the store"
    assert "== Optimized Logical Plan ==" in (attempt / "driver.log").read_text()

    told = {"out": end.out, "err": end.err}
    for root in (production.directory, store.files):
        told |= {
            str(path): path.read_bytes().decode(errors="replace")
            for path in root.rglob("*")
            if path.is_file()
        }
    for secret in (ACCESS_KEY, SECRET_KEY, PASSWORD):
        assert [where for where, text in told.items() if secret in text] == []
