"""Spark's properties for a driver on this machine: production's, without what only holds there,
with the overrides over them.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from backfill.api.application import Application
from backfill.api.pods import Overrides

_ONLY_IN_PRODUCTION = re.compile(
    r"spark\.(master|submit\..*|kubernetes\..*|dynamicAllocation\..*|eventLog\..*|driver\.(host|bindAddress|port|cores)"
    r"|executor\.(instances|cores|memory|memoryOverhead)|ui\..*|metrics\..*|local\.dir"
    r"|sql\.shuffle\.partitions|sql\.streaming\.(checkpointLocation|noDataMicroBatches\.enabled))"
)
_LOCAL_MASTER = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_MEBIBYTE = 2**20
_MEMORY, _JAVA_OPTIONS = "spark.driver.memory", "spark.driver.extraJavaOptions"
_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Spark's first choice runs a program of the operating system to look at each file it renames on a
local disk.
"""


@dataclass(frozen=True, slots=True)
class LocalConf:
    """The properties of a driver on this machine."""

    defaults: Mapping[str, str]
    """What holds unless the program sets something else, as if ``spark-submit`` had brought it."""
    enforced: Mapping[str, str]
    """What holds whatever the program sets: where Spark runs and how big it is, which follows from
    this machine, and the overrides. On a cluster, too, a program comes too late to say how its
    driver's Java is started.
    """

    @property
    def parallelism(self) -> int:
        """Tasks that run at once."""
        return cores(self.enforced)


def local_conf(application: Application, overrides: Overrides) -> LocalConf:
    """The properties of the driver. Shuffle partitions are one for each core unless the overrides
    say otherwise.
    """
    defaults = {
        "spark.app.name": application.name,
        "spark.ui.enabled": "false",
        _MEMORY: f"{_quarter_of_memory() // _MEBIBYTE}m",
        # nobody waits for an answer: throughput is what counts
        _JAVA_OPTIONS: "-XX:+UseParallelGC",
        "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
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
    enforced.setdefault("spark.sql.shuffle.partitions", str(cores(enforced)))
    return LocalConf(defaults, enforced)


def local_variables(application: Application, overrides: Overrides) -> dict[str, str]:
    """The driver's environment variables: production's, with the overrides over them. Those that
    come from elsewhere than the manifest are left to this machine's environment.
    """
    fields = overrides.driver.model_extra or {}
    listed = {
        each["name"]: each["value"]
        for each in fields.get("env") or []
        if each.get("value") is not None
    }
    return application.env | (fields.get("envVars") or {}) | listed


def cores(conf: Mapping[str, str]) -> int:
    """Tasks that run at once under a local master; on any other master, as many as this machine has
    cores.
    """
    match = _LOCAL_MASTER.fullmatch(conf.get("spark.master", "local[*]"))
    if match is None or match[1] == "*":
        return os.cpu_count() or 1
    return int(match[1] or 1)


def _quarter_of_memory() -> int:
    """What Java takes at the most when it is not told; Spark would tell it 1 GiB."""
    return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4, 1024 * _MEBIBYTE)
