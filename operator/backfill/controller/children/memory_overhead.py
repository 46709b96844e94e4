"""Memory that a pod needs beside the heap of its JVM.

A backfill commits in the Python process of the driver, and reads and writes in Python processes
beside every task, where production's pods may run none. With too little memory for them, the pod
would be killed, not just slow.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from backfill.api.backfill import Backfill
from backfill.api.pods import PodOverrides
from backfill.controller.children.pod_template import Role

FACTOR: Final = "spark.kubernetes.memoryOverheadFactor"
_OVERHEAD = "spark.{}.memoryOverhead"
_ROLE_FACTOR = "spark.{}.memoryOverheadFactor"
_DEFAULT_FACTOR = 0.4
"""Spark's default for Python programs."""
_JVM_MIB = 384
"""Spark's minimum for a JVM, for its code, threads and buffers."""
_DRIVER_MIB = 512
"""The application's main program, which is also where outputs are committed, and processes that
Spark keeps for a while after use. Measured: 211 MiB with one query, 217 MiB with four.
"""
_TASK_MIB = 384
"""A process that reads and one that writes, for each task that runs at once."""
_MIB = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024 * 1024}


def raised_overhead(
    role: Role,
    pod: Mapping[str, Any],
    conf: Mapping[str, str],
    backfill: Backfill,
    *,
    memory: str,
    cores: int,
) -> str | None:
    """The ``memoryOverhead`` that a pod needs; None if it has enough, or if the overrides set it.

    Args:
        role: role of the pod.
        pod: fields of the pod in the resource.
        conf: Spark properties of production.
        backfill: the Backfill, with its overrides.
        memory: size of the heap in Spark's notation.
        cores: number of tasks that run in the pod at once.
    """
    overrides: PodOverrides = getattr(backfill.spec.overrides, role)
    key, spark_conf = _OVERHEAD.format(role), backfill.spec.overrides.spark_conf
    if (
        key in spark_conf
        or {"memoryOverhead", "memoryLimit"} & (overrides.model_extra or {}).keys()
    ):
        return None
    heap = _mib(memory)
    given = _mib(str(pod.get("memoryOverhead") or conf.get(key) or ""))
    factor = (
        spark_conf.get(FACTOR)
        or conf.get(_ROLE_FACTOR.format(role))
        or conf.get(FACTOR)
        or _DEFAULT_FACTOR
    )
    has = given or max(heap * float(factor), _JVM_MIB)
    needs = _JVM_MIB + (_DRIVER_MIB if role == "driver" else cores * _TASK_MIB)
    return f"{needs}m" if needs > has else None


def _mib(memory: str) -> float:
    """A size in Spark's notation, in MiB, which is also
    the unit of a plain number; zero if it is not valid.
    """
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", memory.strip().lower())
    return int(found[1]) * _MIB[found[2]] if found else 0
