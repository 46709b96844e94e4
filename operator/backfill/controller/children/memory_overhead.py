"""How much memory a pod needs beside its JVM's heap.

Sources and outputs of a backfill run in Python processes, in the driver and beside every task,
which production's pods did not have to hold. Where what production has would be too little, the pod
would be killed rather than slow.
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
"""Spark's own for Python programs."""
_JVM_MIB = 384
"""What Spark gives every JVM at least, for its code, threads and buffers."""
_PROGRAM_MIB = 512
"""The application's main program, and processes that Spark keeps for a while once they have been of
use.
"""
_STREAM_MIB = 192
"""The process of a source, or the ones that plan and commit an output. Measured: 170 to 210 MiB."""
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
    """The ``memoryOverhead`` that a pod has to get; None where it has enough, or where the
    overrides say how much it gets.

    Args:
        role: whose pod it is.
        pod: its fields in the resource.
        conf: production's Spark properties.
        backfill: says what runs in it.
        memory: the heap, as Spark writes it.
        cores: tasks that run in it at once.
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
    needs = _JVM_MIB + _processes(role, backfill, cores)
    return f"{needs}m" if needs > has else None


def _processes(role: Role, backfill: Backfill, cores: int) -> int:
    if role == "executor":
        return cores * _TASK_MIB
    return _PROGRAM_MIB + _STREAM_MIB * (len(backfill.spec.sources) + len(backfill.spec.outputs))


def _mib(memory: str) -> float:
    """A size as Spark writes it, where a number alone is in MiB; zero where it is not one."""
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", memory.strip().lower())
    return int(found[1]) * _MIB[found[2]] if found else 0
