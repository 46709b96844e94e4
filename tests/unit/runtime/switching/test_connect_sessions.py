"""Programs that were written for Spark Connect."""

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession, functions, session

from backfill.api.errors import BadInput, UnsupportedProgram
from backfill.runtime.queries.run_state import ProgramRun
from backfill.runtime.switching.connect_sessions import forget_server, stay_in_driver

CLIENT = "pyspark.sql.connect.client.core"
FUNCTIONS = "pyspark.sql.connect.functions"
DATABRICKS = "databricks.connect.session"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[BadInput]:
    """The errors that have ended a run whose program stays in the driver, from now on."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in (*filter(lambda name: name.endswith("ProgressHandler"), dir(SparkSession)),):
        monkeypatch.setattr(SparkSession, name, None)
    for name in ("_validate_startup_urls", "create"):
        monkeypatch.setattr(SparkSession.Builder, name, None)
    monkeypatch.setattr(session, "default_api_mode", lambda: "connect", raising=False)
    builder = type("Builder", (), {})
    for name, members in {  # the real ones need gRPC
        CLIENT: {"SparkConnectClient": type("SparkConnectClient", (), {})},
        DATABRICKS: {"DatabricksSession": type("DatabricksSession", (), {"Builder": builder})},
        FUNCTIONS: {"col": None},
    }.items():
        fake = ModuleType(name)
        vars(fake).update(members)
        monkeypatch.setitem(sys.modules, name, fake)
    errors: list[BadInput] = []

    def refuse(error: BadInput) -> BadInput:
        errors.append(error)
        return error

    stay_in_driver(cast(ProgramRun, SimpleNamespace(refuse=refuse)))
    return errors


def test_a_builder_forgets_the_server_that_option_and_variables_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        monkeypatch.setenv(name, "sc://production")
    builder = SparkSession.Builder()
    builder._options = {"spark.remote": "sc://production", "spark.app.name": "orders"}
    forget_server(builder)
    assert builder._options == {"spark.app.name": "orders"}
    assert not {"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"} & os.environ.keys()


def test_a_client_ends_the_run_before_it_connects_even_if_the_program_catches_the_error(
    ended: list[BadInput],
) -> None:
    databricks = sys.modules[DATABRICKS].DatabricksSession.Builder()
    for connect in (
        lambda: sys.modules[CLIENT].SparkConnectClient("sc://production"),
        databricks.getOrCreate,
        databricks.create,
    ):
        with pytest.raises(UnsupportedProgram, match="a server of Spark Connect"):
            connect()
    assert len(ended) == 3


def test_functions_of_the_client_make_columns_for_a_session_in_the_driver(
    ended: list[BadInput],
) -> None:
    assert sys.modules[FUNCTIONS].col is functions.col


def test_create_gives_a_new_session_in_the_driver_with_every_version_of_spark(
    ended: list[BadInput], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        SparkSession.Builder,
        "getOrCreate",
        lambda builder: SimpleNamespace(newSession=lambda: ("new", builder._options)),
    )
    create = SparkSession.Builder().remote("sc://production").appName("orders").create
    assert create() == ("new", {"spark.app.name": "orders"})


def test_a_session_is_classic_where_the_package_pyspark_connect_is_installed(
    ended: list[BadInput],
) -> None:
    assert session.default_api_mode() == "classic"
