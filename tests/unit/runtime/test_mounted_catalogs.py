"""Catalogs whose properties are mounted: in the driver's own program, and in processes that the JVM
starts.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from backfill.api.catalog_properties import CATALOGS_VARIABLE
from backfill.controller.children.launcher import launcher_config_map
from backfill.iceberg.catalogs import catalog_properties
from backfill.protocol.driver_settings import SETTINGS_VARIABLE
from backfill.runtime.__main__ import publish_catalogs
from backfill.runtime.sink import _opened
from iceberg_tables import catalog_properties as sqlite_properties
from iceberg_tables import sqlite_catalog
from waiting import PATIENCE_SECONDS


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """A directory as a driver pod has it, of a catalog whose name no environment variable could
    bear.
    """
    directory = tmp_path / "mounted"
    (directory / "our_lake").mkdir(parents=True)
    for name, value in sqlite_properties(tmp_path).items():
        (directory / "our_lake" / name).write_text(f"{value}\n")
    return directory


def test_the_program_and_what_it_imports_find_them_in_the_environment(mounted: Path) -> None:
    environment = {CATALOGS_VARIABLE: str(mounted)}
    publish_catalogs(environment)
    assert environment["PYICEBERG_CATALOG__OUR_LAKE__TYPE"] == "sql"


def test_without_mounted_catalogs_nothing_is_added() -> None:
    environment: dict[str, str] = {}
    publish_catalogs(environment)
    assert environment == catalog_properties("lake", environment) == {}


def test_a_task_opens_a_table_whatever_was_imported_before(
    tmp_path: Path, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = sqlite_catalog(tmp_path, "our_lake")
    catalog.create_namespace("ops")
    catalog.create_table("ops.counts", Schema(NestedField(1, "n", LongType())))
    monkeypatch.setenv(CATALOGS_VARIABLE, str(mounted))
    assert _opened("our_lake.ops.counts", period=0).name() == ("ops", "counts")


def launched(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The launcher, as a driver pod begins with it, told nothing of a backfill."""
    program = directory / "run.py"
    program.write_text(launcher_config_map({})["data"]["run.py"])
    environment = {name: value for name, value in os.environ.items() if name != SETTINGS_VARIABLE}
    command = [sys.executable, *options, str(program)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=PATIENCE_SECONDS,
    )


def test_the_launcher_begins_the_runtime(tmp_path: Path) -> None:
    ended = launched(tmp_path)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (
        1,
        (
            "error: BACKFILL_SETTINGS is not set: this program must be started by the backfill"
            " controller"
        ),
    )


def test_an_image_without_the_runtime_is_told_what_it_lacks(tmp_path: Path) -> None:
    ended = launched(tmp_path, "-I", "-S")  # the standard library only
    assert ended.returncode == 1
    assert "install the package backfill-operator[spark] in it" in ended.stderr
