"""Spark properties of a driver on this machine:
those of production that apply here, and the overrides.
"""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backfill.api.pods import Overrides
from backfill.api.spark_application import Application

_ONLY_IN_PRODUCTION = re.compile(
    r"spark\.(master|submit\..*|kubernetes\..*|dynamicAllocation\..*|eventLog\..*|driver\.(host|bindAddress|port|cores)"
    r"|executor\.(instances|cores|memory|memoryOverhead)|ui\..*|metrics\..*|local\.dir"
    r"|sql\.shuffle\.partitions|sql\.streaming\.(checkpointLocation|noDataMicroBatches\.enabled))"
)
_LOCAL_MASTER = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_MEBIBYTE = 2**20
_MEMORY, _JAVA_OPTIONS = "spark.driver.memory", "spark.driver.extraJavaOptions"
_CLASSES = Path(sys.prefix, "spark-classes.jsa")
"""An archive of Spark's classes, which ``make demo`` and ``make test`` make: with one, Java loads
them in half the time. Java ignores one of another version or of other jars.
"""


@dataclass(frozen=True, slots=True)
class LocalConf:
    """Spark properties of a driver on this machine."""

    defaults: Mapping[str, str]
    """Properties that the program may replace, as if ``spark-submit`` had set them."""
    enforced: Mapping[str, str]
    """Properties that the program cannot replace: where Spark runs and with how many cores, which
    follow from this machine, and the overrides. As on a cluster, a program runs too late to say how
    the driver's Java is started.
    """

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at once."""
        return cores(self.enforced)


def local_conf(
    application: Application,
    overrides: Overrides,
    partitions: str | None = None,
    *,
    little: bool = False,
) -> LocalConf:
    """The properties of the driver.

    There is one shuffle partition per core unless the overrides say otherwise. With ``partitions``
    there are that many, unless the program or the overrides say otherwise.

    With ``little`` to read Java compiles quickly: a run of seconds is over before code that takes
    longer to compile has saved that time.
    """
    defaults = {
        "spark.app.name": application.name,
        "spark.ui.enabled": "false",
        _MEMORY: f"{_quarter_of_memory() // _MEBIBYTE}m",
        _JAVA_OPTIONS: _java_options(little),
    }
    defaults |= {
        key: value
        for key, value in application.spark_conf.items()
        if not _ONLY_IN_PRODUCTION.fullmatch(key)
    }
    if application.jars:
        defaults["spark.jars"] = ",".join(application.jars)
    enforced = {
        "spark.master": "local[*,4]",  # a task is tried four times, as on a cluster
        _MEMORY: overrides.driver.memory or defaults.pop(_MEMORY),
        _JAVA_OPTIONS: defaults.pop(_JAVA_OPTIONS),
        **overrides.spark_conf,
    }
    if partitions is not None:
        defaults["spark.sql.shuffle.partitions"] = partitions
    else:
        enforced.setdefault("spark.sql.shuffle.partitions", str(cores(enforced)))
    return LocalConf(defaults, enforced)


def local_variables(application: Application, overrides: Overrides) -> dict[str, str]:
    """The driver's environment variables: production's, and the overrides. Variables whose values
    are not in the manifest are taken from the environment of this machine.
    """
    fields = overrides.driver.model_extra or {}
    listed = {
        each["name"]: each["value"]
        for each in fields.get("env") or []
        if each.get("value") is not None
    }
    return application.env | (fields.get("envVars") or {}) | listed


def cores(conf: Mapping[str, str]) -> int:
    """Number of tasks that run at once with a local master; with any other, the number of cores."""
    match = _LOCAL_MASTER.fullmatch(conf.get("spark.master", "local[*]"))
    if match is None or match[1] == "*":
        return os.cpu_count() or 1
    return int(match[1] or 1)


def _java_options(little: bool) -> str:
    # nobody waits for a result, so throughput matters more than latency; and the memory that Java
    # takes to need a hundredth of the time for collections, not a twentieth, saves no time
    options = "-XX:+UseParallelGC -XX:GCTimeRatio=19"
    if little:
        options += " -XX:TieredStopAtLevel=1"
    if _CLASSES.is_file():
        options += f' "-XX:SharedArchiveFile={_CLASSES}" -Xlog:cds*=off'
    return options


def _quarter_of_memory() -> int:
    """The default of Java's maximum heap. Without it, Spark sets 1 GiB."""
    return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4, 1024 * _MEBIBYTE)
