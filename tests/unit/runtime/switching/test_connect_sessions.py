"""Programs that were written for Spark Connect."""

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from backfill.api.errors import BadInput, UnsupportedProgram
from backfill.runtime.queries.run_state import ProgramRun
from backfill.runtime.switching.connect_sessions import forget_server, stay_in_driver

CLIENT = "pyspark.sql.connect.session"


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


def test_a_session_of_the_client_ends_the_run_even_if_the_program_catches_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = ModuleType(CLIENT)  # the real one needs gRPC
    fake.SparkSession = type("SparkSession", (), {"Builder": type("Builder", (), {})})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, CLIENT, fake)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in (*filter(lambda name: name.endswith("ProgressHandler"), dir(SparkSession)),):
        monkeypatch.setattr(SparkSession, name, None)
    monkeypatch.setattr(SparkSession.Builder, "_validate_startup_urls", None)
    ended: list[BadInput] = []

    def refuse(error: BadInput) -> BadInput:
        ended.append(error)
        return error

    stay_in_driver(cast(ProgramRun, SimpleNamespace(refuse=refuse)))
    for start in ("getOrCreate", "create"):
        with pytest.raises(UnsupportedProgram, match="Spark Connect's client"):
            getattr(fake.SparkSession.Builder(), start)()
    assert len(ended) == 2
