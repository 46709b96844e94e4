"""Spark's properties for a driver on this machine: production's, without what only holds there, with the overrides over them."""

import os
import re
from collections.abc import Mapping

from backfill.api.backfill import Application, Overrides

_ONLY_IN_PRODUCTION = re.compile(
    r"spark\.(master|submit\..*|kubernetes\..*|dynamicAllocation\..*|eventLog\..*|driver\.(host|bindAddress|port|cores)"
    r"|executor\.(instances|cores|memory|memoryOverhead)|ui\..*|metrics\..*|local\.dir"
    r"|sql\.shuffle\.partitions|sql\.streaming\.checkpointLocation)"
)
_LOCAL_MASTER = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_MEBIBYTE = 2**20
_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's first choice runs a program of the operating system to look at each file it renames on a local disk."""


def local_conf(application: Application, overrides: Overrides) -> dict[str, str]:
    """The properties of the driver. Shuffle partitions are one for each core unless the overrides say otherwise."""
    conf = {
        "spark.master": "local[*,4]",  # a task is tried four times, as on a cluster
        "spark.app.name": application.name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{_quarter_of_memory() // _MEBIBYTE}m",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",  # nobody waits for an answer: throughput is what counts
        "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
        "spark.sql.session.timeZone": "UTC",
    }
    conf |= {key: value for key, value in application.spark_conf.items() if not _ONLY_IN_PRODUCTION.fullmatch(key)}
    if application.jars:
        conf["spark.jars"] = ",".join(application.jars)
    if overrides.driver.memory:
        conf["spark.driver.memory"] = overrides.driver.memory
    conf |= overrides.spark_conf
    conf.setdefault("spark.sql.shuffle.partitions", str(cores(conf)))
    return conf


def cores(conf: Mapping[str, str]) -> int:
    """Tasks that run at once under a local master; on any other master, as many as this machine has cores."""
    match = _LOCAL_MASTER.fullmatch(conf.get("spark.master", "local[*]"))
    if match is None or match[1] == "*":
        return os.cpu_count() or 1
    return int(match[1] or 1)


def _quarter_of_memory() -> int:
    """What Java takes at the most when it is not told; Spark would tell it 1 GiB."""
    return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4, 1024 * _MEBIBYTE)
