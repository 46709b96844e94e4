"""The driver as a child process: how it is found again, what it is given, and what is looked for
before.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backfill.api.errors import Problem
from backfill.api.pods import Overrides
from backfill.api.spark_application import Application
from backfill.api.status import SourceStatus
from backfill.controller.driver import DriverState, Launch
from backfill.controller.local_driver import local_spark_conf
from backfill.controller.local_driver.backend import LocalBackend
from backfill.controller.local_driver.java import find_java
from backfill.controller.local_driver.local_spark_conf import cores, local_conf, local_variables
from backfill.controller.local_driver.processes import group_members
from backfill.planning.workspace import Workspace
from backfill.protocol.driver_settings import DriverSettings
from situations import HEADER, backfill, planned
from waiting import eventually

APPLICATION = Application(
    name="app",
    main_application_file="/app/main.py",
    py_files=("/app/lib.zip",),
    env={"REGION": "eu"},
    spark_conf={
        "spark.master": "yarn",
        "spark.kubernetes.namespace": "streaming",
        "spark.dynamicAllocation.enabled": "true",
        "spark.sql.shuffle.partitions": "800",
        "spark.sql.streaming.checkpointLocation": "s3://production/checkpoints",
        "spark.executor.memory": "64g",
        "spark.sql.caseSensitive": "true",
    },
)
SLEEP = "import time; time.sleep(600)"
WITH_CHILD = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); print('child"
    " started', flush=True)"
)


def ended(backend: LocalBackend) -> DriverState:
    """The first attempt's driver once it has ended."""
    state: DriverState = eventually(
        lambda: (seen := backend.observe(1)).phase == "Exited" and seen, "the end of the driver"
    )
    return state


class Drivers:
    """Backends over one directory, as controllers that come after each other make them."""

    def __init__(self, directory: Path):
        self.directory = directory

    def backend(
        self, program: str = SLEEP, environment: dict[str, str] | None = None
    ) -> LocalBackend:
        return LocalBackend(
            self.directory / "attempts",
            self.directory / "channel",
            application=APPLICATION,
            overrides=Overrides(),
            command=(sys.executable, "-c", program),
            environment=os.environ if environment is None else environment,
        )

    def start(
        self,
        program: str = SLEEP,
        environment: dict[str, str] | None = None,
        *,
        planned_bytes: int = 0,
    ) -> LocalBackend:
        sources = (SourceStatus(name="clicks", bytes=planned_bytes),)
        status = planned().model_copy(update={"sources": sources})
        backend = self.backend(program, environment)
        backend.start(
            Launch(
                1,
                backfill(status),
                HEADER.plan_id,
                Workspace("/plan"),
                Workspace("/checkpoints"),
            )
        )
        return backend

    @property
    def pid(self) -> int:
        return int(
            json.loads((self.directory / "attempts" / "1" / "driver.json").read_bytes())["pid"]
        )


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Drivers]:
    made = Drivers(tmp_path)
    yield made
    made.backend().kill(1)


def test_an_attempt_that_was_never_started_is_absent(drivers: Drivers) -> None:
    assert drivers.backend().observe(1).phase == "Absent"


def test_the_exit_status_of_a_driver_is_seen(drivers: Drivers) -> None:
    backend = drivers.start("raise SystemExit(17)")
    assert ended(backend).exit_status == 17


def test_a_later_controller_finds_the_driver_and_can_kill_it(drivers: Drivers) -> None:
    backend = drivers.start()
    later = drivers.backend()
    assert later.observe(1).phase == "Running"
    later.kill(1)
    ended(backend)
    assert later.observe(1) == DriverState("Exited", None)


def test_a_driver_has_exited_only_when_nothing_it_started_is_left(drivers: Drivers) -> None:
    backend = drivers.start(WITH_CHILD)
    ended(backend)
    assert "child started" in backend.log_tail(1)
    assert group_members(drivers.pid) == []


def test_another_process_that_got_the_same_number_is_not_taken_for_the_driver(
    drivers: Drivers,
) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True) as stranger:
        try:
            path = drivers.directory / "attempts" / "1" / "driver.json"
            path.parent.mkdir(parents=True)
            path.write_text(
                json.dumps({"pid": stranger.pid, "group": stranger.pid, "started": "long ago"})
            )
            backend = drivers.backend()
            assert backend.observe(1).phase == "Exited"
            backend.kill(1)
            assert stranger.poll() is None
        finally:
            stranger.send_signal(signal.SIGKILL)


def test_ctrl_c_in_the_terminal_does_not_reach_the_driver(drivers: Drivers) -> None:
    drivers.start()
    assert os.getsid(drivers.pid) != os.getsid(0)


def test_the_log_is_kept_and_its_end_can_be_read(drivers: Drivers) -> None:
    backend = drivers.start("print('\\n'.join(f'line {n}' for n in range(1000)))")
    ended(backend)
    assert backend.log_tail(1)[-1] == "line 999"
    assert backend.log(1).exists()
    assert not (backend.log(1).parent / "tmp").exists(), "temporary files are removed"


def test_the_driver_gets_its_settings_and_the_environment_of_the_application(
    drivers: Drivers,
) -> None:
    program = "import os, json; print(json.dumps(dict(os.environ)))"
    inherited = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": "/mine",
        "SPARK_HOME": "/opt/spark-3",
        "PYICEBERG_HOME": "/conf",
    }
    backend = drivers.start(program, inherited)
    ended(backend)
    environment = json.loads(backend.log_tail(1)[-1])
    settings = DriverSettings.model_validate_json(environment["BACKFILL_SETTINGS"])
    assert (settings.backfill, settings.attempt, settings.plan, settings.checkpoints) == (
        "january",
        1,
        "/plan",
        "/checkpoints",
    )
    assert settings.main_file == "/app/main.py"
    assert (environment["REGION"], environment["PYICEBERG_HOME"], environment["TZ"]) == (
        "eu",
        "/conf",
        "UTC",
    )
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["PYTHONPATH"].split(":")[1:] == ["/app/lib.zip", "/mine"]
    assert "SPARK_HOME" not in environment


def test_freed_memory_goes_back_to_the_machine_unless_the_user_wants_otherwise(
    drivers: Drivers,
) -> None:
    program = "import os, json; print(json.dumps(dict(os.environ)))"
    given = {"PATH": os.environ["PATH"], "MALLOC_ARENA_MAX": "8"}
    backend = drivers.start(program, given)
    ended(backend)
    environment = json.loads(backend.log_tail(1)[-1])
    assert environment["ARROW_DEFAULT_MEMORY_POOL"] == "system"
    assert environment["MALLOC_ARENA_MAX"] == "8"


@pytest.mark.parametrize(("planned_bytes", "quickly"), [(16 * 2**20, False), (1_000, True)])
def test_java_compiles_quickly_where_there_is_little_to_read(
    drivers: Drivers, planned_bytes: int, quickly: bool
) -> None:
    program = "import os; print(os.environ['BACKFILL_SETTINGS'])"
    backend = drivers.start(program, planned_bytes=planned_bytes)
    ended(backend)
    settings = DriverSettings.model_validate_json(backend.log_tail(1)[-1])
    options = settings.spark_conf["spark.driver.extraJavaOptions"].split()
    assert ("-XX:TieredStopAtLevel=1" in options) == quickly


def test_what_only_holds_in_production_is_left_out() -> None:
    conf = local_conf(APPLICATION, Overrides())
    assert conf.enforced["spark.master"] == "local[*,4]"
    assert conf.defaults["spark.sql.caseSensitive"] == "true"
    assert conf.enforced["spark.sql.shuffle.partitions"] == str(os.cpu_count())
    left_out = {
        "spark.kubernetes.namespace",
        "spark.dynamicAllocation.enabled",
        "spark.executor.memory",
    }
    left_out |= {"spark.sql.streaming.checkpointLocation"}
    assert not left_out & {*conf.defaults, *conf.enforced}
    assert not {"spark.master", "spark.sql.shuffle.partitions"} & set(conf.defaults)


def test_overrides_win() -> None:
    overrides = Overrides.model_validate(
        {
            "driver": {"memory": "3g"},
            "sparkConf": {
                "spark.master": "local[3]",
                "spark.sql.shuffle.partitions": "7",
                "spark.sql.caseSensitive": "false",
            },
        }
    )
    conf = local_conf(APPLICATION, overrides).enforced
    assert conf["spark.driver.memory"] == "3g"
    assert (conf["spark.master"], conf["spark.sql.shuffle.partitions"]) == ("local[3]", "7")
    assert conf["spark.sql.caseSensitive"] == "false"


def test_shuffle_partitions_follow_the_cores_of_an_overridden_master() -> None:
    conf = local_conf(APPLICATION, Overrides(spark_conf={"spark.master": "local[3]"}))
    assert conf.enforced["spark.sql.shuffle.partitions"] == "3"


def test_variables_that_the_overrides_set_reach_a_local_driver_as_they_reach_a_pod() -> None:
    env = [
        {"name": "TZ", "value": "America/New_York"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "api"}}},
    ]
    overrides = Overrides.model_validate({"driver": {"env": env, "envVars": {"LEGACY": "1"}}})
    assert local_variables(APPLICATION, overrides) == {
        "REGION": "eu",
        "LEGACY": "1",
        "TZ": "America/New_York",
    }


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,4]", 3),
        ("local[*]", os.cpu_count()),
        ("local[*,4]", os.cpu_count()),
    ],
)
def test_tasks_at_once_are_what_the_master_says(master: str, expected: int) -> None:
    assert cores({"spark.master": master}) == expected


def _java(directory: Path, version: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return directory


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = _java(tmp_path / "home", "21.0.2")
    other = _java(tmp_path / "other", "17.0.1")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == home


def test_a_java_home_that_is_too_old_gives_way_to_the_java_on_the_path(tmp_path: Path) -> None:
    home = _java(tmp_path / "home", "1.8.0_392")
    other = _java(tmp_path / "other", "17.0.1")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == other


def test_without_a_java_that_is_new_enough_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill.controller.local_driver.java._INSTALLED", ())
    home = _java(tmp_path / "home", "11.0.2")
    problem = find_java({"JAVA_HOME": str(home), "PATH": str(tmp_path)})
    assert isinstance(problem, Problem)
    assert f"{home} is Java 11" in str(problem)
    assert "set JAVA_HOME" in str(problem)
    assert "\n" not in str(problem)


def test_a_missing_main_program_is_an_obstacle(drivers: Drivers) -> None:
    assert any("/app/main.py" in str(problem) for problem in drivers.backend().obstacles())


def test_java_loads_its_classes_from_an_archive_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "of two words" / "classes.jsa"
    monkeypatch.setattr(local_spark_conf, "_CLASSES", archive)
    key = "spark.driver.extraJavaOptions"
    assert local_conf(APPLICATION, Overrides()).enforced[key] == (
        "-XX:+UseParallelGC -XX:GCTimeRatio=19"
    )
    archive.parent.mkdir()
    archive.touch()
    options = local_conf(APPLICATION, Overrides()).enforced[key]
    assert shlex.split(options)[2] == f"-XX:SharedArchiveFile={archive}"
    given = APPLICATION.model_copy(update={"spark_conf": {key: "-Xss8m"}})
    assert local_conf(given, Overrides()).enforced[key] == "-Xss8m"
