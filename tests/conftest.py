"""Fixtures that tests of several topics use."""

import os
import sqlite3
from pathlib import Path

import pytest
from hypothesis import settings
from pyiceberg.catalog import Catalog
from sqlalchemy import Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from backfill.iceberg.format_v3 import write_v3_metadata
from iceberg_tables import configured_lake
from small_java import LOCAL_FILES, quick_here

# Whether a change may land must not depend on luck; new examples are looked for everywhere else.
# How long an example takes says how busy the machine is.
settings.register_profile("examples", derandomize=bool(os.environ.get("CI")), deadline=None)
settings.load_profile("examples")

# Java of the drivers that tests start, and of whatever submits them.
os.environ.setdefault("SPARK_SUBMIT_OPTS", quick_here())
if LOCAL_FILES.exists():
    os.environ.setdefault("SPARK_DIST_CLASSPATH", str(LOCAL_FILES))


@event.listens_for(Engine, "connect")
def _survive_kills_only(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
    """Catalogs of tests need not survive a loss of power, for which every commit waits."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """An empty catalog ``lake`` with a namespace ``raw``, configured where PyIceberg looks, here
    and in child processes.
    """
    return configured_lake(tmp_path, monkeypatch)


@pytest.fixture
def format_v3() -> None:
    """Lets PyIceberg write metadata of format v3, before a backfill does so."""
    write_v3_metadata()
