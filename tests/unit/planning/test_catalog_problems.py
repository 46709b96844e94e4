"""Catalogs that cannot be opened: wrong properties are bad input at once, a server that does not
answer may be back.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from planned import plan, source
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from backfill.api.errors import InvalidPlanInput
from backfill.iceberg import open_tables

IN_SECRET_OR_ENVIRONMENT = (
    "correct its PyIceberg properties: the keys of its Secret in spec.catalogs or, without a"
    " Secret, "
)


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@contextmanager
def closing_every_connection() -> Iterator[int]:
    """The port of a server that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                connection, _ = server.accept()
                if not connection.recv(1):
                    return
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        socket.create_connection(server.getsockname()).close()
        thread.join()


def make_tables(properties: dict[str, str]) -> None:
    catalog = load_catalog("sea", **properties)
    catalog.create_namespace("raw")
    for name in "ab":
        catalog.create_table(f"raw.{name}", schema=pa.schema([("ts", pa.timestamp("us", "UTC"))]))


def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **properties: str) -> InvalidPlanInput:
    """What is said of a Backfill with two sources in a catalog with these properties."""
    for key, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SEA__{key.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    with pytest.raises(InvalidPlanInput) as raised:
        plan(tmp_path / "w", source("a", table="sea.raw.a"), source("b", table="sea.raw.b"))
    return raised.value


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (
            {"type": "resst", "uri": "http://sea"},
            'its property type is "resst"; did you mean rest?; correct',
        ),
        (
            {"type": "x", "uri": "http://sea"},
            'its property type is "x"; use one of rest, hive, glue',
        ),
        ({"type": "rest"}, "its property uri is missing; correct"),
        ({"warehouse": "s3://sea"}, "its property uri is missing; correct"),
        (
            {"uri": "sea:8181"},
            "its property type is missing, and the uri does not imply it; use one of rest",
        ),
        (
            {"type": "rest", "uri": "sea:8181"},
            "its property uri is not a valid address for this type of catalog (InvalidSchema)",
        ),
        (
            {"type": "rest", "uri": "http://:8181"},
            "its property uri is not a valid address for this type of catalog (InvalidURL)",
        ),
        (
            {"type": "sql", "uri": "me:hunter2"},
            "its property uri is not a valid address for this type of catalog (ArgumentError)",
        ),
        (
            {"type": "sql", "uri": "postgres://me:hunter2@sea/lake"},
            "its property uri is not a valid address for this type of catalog",
        ),
        (
            {"type": "sql", "uri": "mysql+pymysql://me:hunter2@sea/lake"},
            "its property type needs a package that is not installed",
        ),
        (
            {"uri": "thrift://sea:9083"},
            "its property uri needs a package that is not installed: Apache Hive support",
        ),
        (
            {"type": "rest", "uri": "http://sea", "rest.sigv4-enabled": "perhaps"},
            "rest.sigv4-enabled",
        ),
    ],
    ids=lambda value: (
        ",".join(f"{key}={text}" for key, text in value.items()) if isinstance(value, dict) else ""
    ),
)
def test_wrong_properties_are_one_mistake_that_no_waiting_mends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], said: str
) -> None:
    error = refused(tmp_path, monkeypatch, **properties)
    (problem,) = error.problems
    assert str(problem).startswith("catalog sea cannot be opened: ")
    assert said in str(problem)
    assert IN_SECRET_OR_ENVIRONMENT in problem.fix
    assert "hunter2" not in str(problem)
    assert not error.may_pass


def test_the_variable_of_the_wrong_property_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = refused(tmp_path, monkeypatch, type="resst")
    assert (
        "catalog.sea in .pyiceberg.yaml or PYICEBERG_CATALOG__SEA__TYPE in the environment"
        in str(error)
    )


def test_a_server_that_does_not_answer_may_be_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_port: int
) -> None:
    error = refused(tmp_path, monkeypatch, type="rest", uri=f"http://127.0.0.1:{closed_port}")
    (problem,) = error.problems
    assert problem.message.startswith("catalog sea cannot be opened: ")
    assert error.may_pass


def test_a_table_whose_files_nothing_here_can_open_is_no_matter_of_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{tmp_path}/warehouse",
    }
    make_tables(properties)
    error = refused(tmp_path, monkeypatch, **properties, **{"py-io-impl": "no.such.FileIO"})
    assert [problem.message for problem in error.problems] == [
        f"table sea.raw.{name} cannot be loaded: Could not initialize FileIO: no.such.FileIO"
        for name in "ab"
    ]
    assert not error.may_pass


def test_a_lost_connection_is_tried_again_and_a_wrong_address_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_port: int
) -> None:
    monkeypatch.setattr(open_tables, "_AWAY_SECONDS", 0.1)
    with closing_every_connection() as port:
        lost = refused(tmp_path, monkeypatch, type="rest", uri=f"http://127.0.0.1:{port}")
    wrong = refused(tmp_path, monkeypatch, type="rest", uri=f"http://127.0.0.1:{closed_port}")
    assert (lost.may_pass, lost.unavailable) == (True, True), lost
    assert (wrong.may_pass, wrong.unavailable) == (True, False), wrong


def test_a_catalog_whose_name_is_misspelled_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__SEA__URI", "http://sea")
    with pytest.raises(InvalidPlanInput, match=r"is not configured; did you mean sea\? Otherwise "):
        plan(tmp_path / "w", source("a", table="see.raw.a"))
