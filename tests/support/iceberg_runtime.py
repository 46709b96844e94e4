"""Iceberg's own runtime for the Spark that is installed here."""

import subprocess
from pathlib import Path

import pytest

import missing
from backfill.runtime.spark_versions import SPARK
from installed_spark import INSTALLED
from repository import ROOT

_HERE = ROOT / "tests" / "support" / "iceberg"
_RELEASES = {(3, 5): ("2.12", "1.12.0"), (4, 0): ("2.13", "1.11.0"), (4, 1): ("2.13", "1.12.0")}
"""By version of Spark, the version of Scala and the newest release that Maven Central has."""


def find_runtime() -> str:
    """Iceberg's runtime and the driver of a catalog in SQLite, as Spark takes jars. Skips the test
    where Iceberg has no release for this Spark, or none can be had; with CI set the latter fails.
    """
    if SPARK not in _RELEASES:
        pytest.skip(f"Iceberg has no runtime for Spark {INSTALLED}")
    scala, release = _RELEASES[SPARK]
    sums = _HERE / f"jars-{INSTALLED}.sha256"
    options = (f"-Dspark={INSTALLED}_{scala}", f"-Diceberg={release}")
    command = ["sh", ROOT / "scripts" / "jars.sh", _HERE / "pom.xml", sums, "iceberg", *options]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        missing.skip(found.stderr.strip()[-1000:])
    return ",".join(sorted(map(str, Path(found.stdout.strip()).iterdir())))


def catalog_conf(directory: Path) -> dict[str, str]:
    """Spark's properties for the catalog ``lake`` of ``configured_lake``, as a program sets them."""
    catalog = "spark.sql.catalog.lake"
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{directory}/catalog.db",
        f"{catalog}.warehouse": f"{directory}/warehouse",
        f"{catalog}.jdbc.schema-version": "V1",
    }
