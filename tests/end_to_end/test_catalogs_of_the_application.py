"""The application's Spark properties are the only configuration of its catalog."""

import os
from pathlib import Path

import pytest
import yaml
from production import Production, ended
from test_proposed_backfill import demo

from iceberg_tables import sqlite_catalog
from manifests import spark_application

WINDOW = "2024-03-01T04:00:00Z/2024-03-01T05:00:00Z"
NAME = "departures-2024-03-01t0400-to-2024-03-01t0500"
STATE = ("--state-dir", "state")


def production_without_configuration(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> Production:
    """The demo with tables in a catalog that only Spark knows. Its name could be in no variable of
    PyIceberg's.
    """
    for name in [each for each in os.environ if each.startswith("PYICEBERG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYICEBERG_HOME", str(directory))
    catalog = sqlite_catalog(directory, "prod_lake")
    catalog.create_namespace("raw")
    production = demo(catalog, directory)
    conf = {
        "spark.sql.catalog.prod_lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.prod_lake.type": "jdbc",
        "spark.sql.catalog.prod_lake.uri": f"jdbc:sqlite:{directory}/catalog.db",
        "spark.sql.catalog.prod_lake.warehouse": f"{directory}/warehouse",
    }
    application = spark_application(
        "departures", mainApplicationFile="application.py", sparkConf=conf
    )
    (directory / "application.yaml").write_text(yaml.safe_dump(application))
    return production


def test_a_result_is_found_computed_approved_and_undone_without_pyicebergs_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    production = production_without_configuration(tmp_path, monkeypatch)
    proposal = ("--application", "application.yaml", "--window", WINDOW, "--output", "b.yaml")
    end = ended(production.start("init", *proposal))
    assert end.status == 0, end.err
    manifest = tmp_path / "b.yaml"
    proposed = manifest.read_text()
    assert "table: prod_lake.raw.flights" in proposed
    manifest.write_text(proposed.replace("mode: None", "mode: Append\n        approval: Manual"))

    end = ended(production.start("run", "b.yaml", *STATE))
    assert end.status == 3, end.err
    assert production.output("ops.departures").num_rows == 0
    end = ended(production.start("sample", NAME, *STATE))
    assert end.status == 0, end.err
    end = ended(production.start("approve", NAME, *STATE))
    assert end.status == 0, end.err
    assert production.output("ops.departures").num_rows == 180 * 180
    end = ended(production.start("undo", NAME, *STATE))
    assert end.status == 0, end.err
    assert production.output("ops.departures").num_rows == 0
