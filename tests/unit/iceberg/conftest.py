"""A table of a team, for attacks on whoever opens it."""

from pathlib import Path

import pytest
from pyiceberg.table import Table

from iceberg_tables import sqlite_catalog
from table_jobs import Clicks


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the catalog and its table."""
    return tmp_path_factory.mktemp("clicks") / "lake"


@pytest.fixture(scope="module")
def clicks(shared: Path) -> Clicks:
    return Clicks(shared)


@pytest.fixture
def table(clicks: Clicks) -> Table:
    return sqlite_catalog(clicks.directory).load_table("raw.clicks")
