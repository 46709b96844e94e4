"""Drivers on this machine: Spark as a child process,
in a session of its own so that it outlives the controller.

``attempts/<n>/driver.log`` has what the driver printed, and ``driver.json`` the identity of its
process, by which a later controller finds it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from backfill.api.errors import Problem
from backfill.api.pods import Overrides
from backfill.api.spark_application import Application
from backfill.controller.driver import DriverState, Launch, driver_settings
from backfill.controller.local_driver.java import find_java
from backfill.controller.local_driver.local_spark_conf import local_conf, local_variables
from backfill.controller.local_driver.processes import (
    ProcessInfo,
    group_members,
    kill_group,
    process,
)
from backfill.protocol.atomic_files import replace_file
from backfill.protocol.driver_settings import SETTINGS_VARIABLE, DriverSettings
from backfill.protocol.model_files import damaged

_LOG = "driver.log"
_IDENTITY = "driver.json"
_TEMPORARY = "tmp"
_TAIL_BYTES = 64 * 1024
_TAIL_LINES = 40
_PACKAGE_PARENT = Path(__file__).parents[3]

_LITTLE = 16 * 2**20
"""Bytes to read of which a driver has little to do."""
_GIVES_BACK = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
"""What the processes of tasks have freed goes back to the machine, unless the user wants something
else. Arrow's own allocator and one of glibc's for each thread keep more, and are not faster here.
"""


class LocalBackend:
    """The drivers of one Backfill."""

    def __init__(
        self,
        attempts: Path,
        channel: Path,
        *,
        application: Application,
        overrides: Overrides,
        partitions: str | None = None,
        command: Sequence[str] = (sys.executable, "-m", "backfill.runtime"),
        environment: Mapping[str, str] = os.environ,
    ):
        """Keeps what drivers are started with.

        Args:
            attempts: directory of the attempts.
            channel: directory that controller and driver share.
            application: the application.
            overrides: settings that differ from production.
            partitions: number of shuffle partitions, unless the overrides set it.
            command: the driver's program, which finds its settings in the environment.
            environment: environment variables of this process.
        """
        self._attempts = attempts
        self._channel = channel
        self._application = application
        self._conf = partial(local_conf, application, overrides, partitions)
        self._variables = local_variables(application, overrides)
        self._command = tuple(command)
        self._environment = environment
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._drivers: dict[int, ProcessInfo] = {}

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at once."""
        return self._conf().parallelism

    @property
    def application(self) -> Application:
        """The application."""
        return self._application

    def obstacles(self) -> tuple[Problem, ...]:
        """Problems with Java or the main program."""
        problems = []
        java = find_java(self._environment)
        if isinstance(java, Problem):
            problems.append(java)
        if not Path(self._application.main_application_file).is_file():
            message = f"there is no file {self._application.main_application_file}"
            problems.append(
                Problem("SparkApplication spec.mainApplicationFile", message, "correct the path")
            )
        return tuple(problems)

    def child(self, attempt: int) -> None:
        """None: a process has no name."""

    def start(self, launch: Launch) -> None:
        """Starts the driver. Its output is written to the attempt's log."""
        directory = self._directory(launch.attempt)
        temporary = directory / _TEMPORARY
        temporary.mkdir(parents=True, exist_ok=True)
        with (directory / _LOG).open("ab") as log:
            child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._driver_environment(self._settings(launch, temporary), temporary),
                start_new_session=True,
            )
        self._children[launch.attempt] = child
        driver = process(child.pid) or ProcessInfo(
            child.pid, child.pid, started="ended immediately"
        )
        replace_file(directory / _IDENTITY, json.dumps(asdict(driver)).encode())

    def observe(self, attempt: int) -> DriverState:
        """The state of a driver. It has exited only if nothing of it is left: the JVM may outlive
        the Python process for a moment.
        """
        driver = self._driver(attempt)
        if driver is None:
            return DriverState("Absent")
        child = self._children.get(attempt)
        if child.poll() is None if child else process(driver.pid) == driver:
            return DriverState("Running")
        if _remains(driver):
            kill_group(driver.group)
            return DriverState("Running")
        shutil.rmtree(self._directory(attempt) / _TEMPORARY, ignore_errors=True)
        return DriverState("Exited", child.returncode if child else None)

    def kill(self, attempt: int) -> None:
        """Kills the driver's process group."""
        driver = self._driver(attempt)
        if driver is not None and _remains(driver):
            kill_group(driver.group)

    def log_tail(self, attempt: int) -> tuple[str, ...]:
        """The last lines of the driver's log."""
        try:
            with self.log(attempt).open("rb") as log:
                log.seek(max(log.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
                return tuple(log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])
        except FileNotFoundError:
            return ()

    def log(self, attempt: int) -> Path:
        """Path of an attempt's log."""
        return self._directory(attempt) / _LOG

    def _directory(self, attempt: int) -> Path:
        return self._attempts / str(attempt)

    def _driver(self, attempt: int) -> ProcessInfo | None:
        """The process of an attempt's driver, running or not."""
        if attempt not in self._drivers:
            path = self._directory(attempt) / _IDENTITY
            try:
                self._drivers[attempt] = ProcessInfo(**json.loads(path.read_bytes()))
            except FileNotFoundError:
                return None
            except (ValueError, TypeError) as error:
                raise damaged(path, str(error)) from error
        return self._drivers[attempt]

    def _settings(self, launch: Launch, temporary: Path) -> DriverSettings:
        planned = sum(source.bytes for source in launch.backfill.status.sources)
        conf = self._conf(little=planned < _LITTLE)
        return driver_settings(
            launch,
            channel=str(self._channel),
            main_file=self._application.main_application_file,
            arguments=self._application.arguments,
            spark_conf=conf.enforced,
            spark_defaults=conf.defaults,
            production_conf=self._application.spark_conf,
        )

    def _driver_environment(self, settings: DriverSettings, temporary: Path) -> dict[str, str]:
        inherited_home = self._environment.get("SPARK_HOME", "")
        # SPARK_HOME may be another Spark
        inherited = {key: value for key, value in self._environment.items() if key != "SPARK_HOME"}
        paths = [
            str(_PACKAGE_PARENT),
            *_spark_of_an_image(inherited_home),
            *self._application.py_files,
            *filter(None, [inherited.get("PYTHONPATH")]),
        ]
        java = find_java(self._environment)
        return {
            **_GIVES_BACK,
            **inherited,
            # as in a pod: the local time zone, and with it Spark's session time zone, is UTC there
            "TZ": "UTC",
            "SPARK_LOCAL_DIRS": str(temporary),
            # the machine's own name may resolve to another address, as with a VPN
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONUNBUFFERED": "1",
            **({"JAVA_HOME": str(java)} if isinstance(java, Path) else {}),
            **self._variables,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(paths),
            SETTINGS_VARIABLE: settings.model_dump_json(by_alias=True, exclude_none=True),
        }


def _spark_of_an_image(home: str) -> list[str]:
    """Where the Python of Spark's own images has PySpark: not among its packages."""
    if find_spec("pyspark") is not None:
        return []
    python = Path(home, "python")
    return [str(python), *map(str, sorted(python.glob("lib/py4j-*.zip")))]


def _remains(driver: ProcessInfo) -> list[ProcessInfo]:
    """Processes that are left of a driver's process group. The number of a group is not reused
    while the group has a process.
    """
    leader = process(driver.pid)
    return [] if leader is not None and leader != driver else group_members(driver.group)
