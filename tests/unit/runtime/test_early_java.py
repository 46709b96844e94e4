"""Java that is started before the program."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import SparkConf, SparkContext

from backfill.runtime import early_java
from backfill.runtime.early_java import early_gateway, start_java
from backfill.runtime.settings import RuntimeSettings
from waiting import PATIENCE_SECONDS

KNOWN = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.sql.ansi.enabled": "true"}


class FakeGateway:
    """The connection to a process that waits, instead of Java."""

    def __init__(self, conf: SparkConf):
        self.started_with = dict(conf.getAll())
        self.proc = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )

    def shutdown(self) -> None:
        """Closes the connection."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[FakeGateway]:
    """What is started. The environment and the working directory are as before at the end."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    gateways = []

    def launch(conf: SparkConf) -> FakeGateway:
        gateways.append(FakeGateway(conf))
        return gateways[-1]

    settings = RuntimeSettings.model_construct(spark_conf=KNOWN, spark_defaults={})
    monkeypatch.setattr(early_java, "launch_gateway", launch)
    monkeypatch.setattr(early_java, "settings_from_environment", lambda: settings)
    return gateways


def conf_of(gateway: FakeGateway, changes: dict[str, str]) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll([*(gateway.started_with | changes).items()])


@pytest.mark.parametrize(
    "changes",
    [{}, {"spark.app.name": "a", "spark.sql.ansi.enabled": "false", "spark.executor.cores": "2"}],
)
def test_it_is_the_first_context_s_and_no_other_s(
    started: list[FakeGateway], changes: dict[str, str]
) -> None:
    java = _java(started)
    assert java.started_with.items() >= KNOWN.items()
    assert early_gateway(conf_of(java, changes)) is java
    assert early_gateway(conf_of(java, changes)) is None
    java.proc.communicate()


@pytest.mark.parametrize(
    ("changes", "program"),
    [
        ({"spark.jars": "more.jar"}, lambda: None),
        ({"spark.driver.extraClassPath": "/more"}, lambda: None),
        ({}, lambda: os.environ.update(PYSPARK_SUBMIT_ARGS="--packages a:b:1 pyspark-shell")),
        ({}, lambda: os.chdir("/")),
        ({}, lambda: setattr(SparkContext, "_gateway", object())),
    ],
    ids=[
        "a library",
        "a class path",
        "a variable of the environment",
        "another directory",
        "a Java of its own",
    ],
)
def test_it_is_ended_where_the_program_changes_what_it_is_started_with(
    started: list[FakeGateway], changes: dict[str, str], program: Callable[[], None]
) -> None:
    java = _java(started)
    program()
    assert early_gateway(conf_of(java, changes)) is None
    assert java.proc.returncode is not None


def test_it_is_ended_where_a_process_of_the_program_holds_its_input_open(
    started: list[FakeGateway],
) -> None:
    java = _java(started)
    assert java.proc.stdin is not None
    held = os.dup(java.proc.stdin.fileno())  # as a forked process does
    giving_up = threading.Timer(PATIENCE_SECONDS, os.close, (held,))
    giving_up.start()
    assert early_gateway(conf_of(java, {"spark.jars": "more.jar"})) is None
    assert java.proc.returncode is not None
    assert giving_up.is_alive(), "it was waited for until nothing held its input open"
    giving_up.cancel()
    os.close(held)


def test_it_is_not_started_where_spark_submit_has_done_it(
    started: list[FakeGateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    java = _java(started)
    assert early_gateway(conf_of(java, {})) is java
    java.proc.communicate()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    start_java()
    assert early_gateway(conf_of(java, {})) is None
    assert len(started) == 1


def test_a_java_that_cannot_be_started_is_left_to_pyspark(
    started: list[FakeGateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    java = _java(started)
    assert early_gateway(conf_of(java, {})) is java
    java.proc.communicate()

    def fail(conf: SparkConf) -> None:
        raise RuntimeError("JAVA_GATEWAY_EXITED")

    monkeypatch.setattr(early_java, "launch_gateway", fail)
    start_java()
    assert early_gateway(SparkConf(loadDefaults=False)) is None


def _java(started: list[FakeGateway]) -> FakeGateway:
    start_java()
    early_java._early[0]._thread.join()
    (gateway,) = started
    return gateway
