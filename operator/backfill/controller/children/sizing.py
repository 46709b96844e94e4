"""Sizes of a backfill's pods, wherever production declares them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backfill.api.backfill import Backfill
from backfill.controller.children.memory_overhead import raised_overhead
from backfill.controller.children.pod_template import Role
from backfill.controller.driver import SHUFFLE_PARTITIONS, shuffle_partitions

_DEFAULT_MEMORY = "1g"
"""Spark's default."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """Sizes of driver and executors."""

    driver_cores: int
    driver_memory: str
    executor_cores: int
    executor_memory: str
    executors: int
    """Number of executors at the start."""
    most_executors: int
    state_partitions: str | None = None
    """Number of shuffle partitions, if the program decides it and this is what production says;
    None if it is that of tasks that run at once.
    """
    driver_overhead: str | None = None
    """Memory beside the heap, if it must be more than production's."""
    executor_overhead: str | None = None

    @classmethod
    def of(
        cls,
        driver: Mapping[str, Any],
        executor: Mapping[str, Any],
        conf: Mapping[str, str],
        backfill: Backfill,
    ) -> "Sizing":
        """Reads sizes from fields of the resource, or else from its Spark properties, or else takes
        Spark's defaults.

        An attempt starts with the number of executors that was wanted last.
        """
        scaling = backfill.spec.scaling
        wanted = backfill.status.progress.executor_target or scaling.min_executors
        driver_cores, driver_memory = (
            _cores(driver, conf, "driver"),
            _memory(driver, conf, "driver"),
        )
        executor_cores, executor_memory = (
            _cores(executor, conf, "executor"),
            _memory(executor, conf, "executor"),
        )
        return cls(
            driver_cores=driver_cores,
            driver_memory=driver_memory,
            driver_overhead=raised_overhead(
                "driver", driver, conf, backfill, memory=driver_memory, cores=driver_cores
            ),
            executor_cores=executor_cores,
            executor_memory=executor_memory,
            executor_overhead=raised_overhead(
                "executor", executor, conf, backfill, memory=executor_memory, cores=executor_cores
            ),
            executors=min(max(wanted, scaling.min_executors), scaling.max_executors),
            most_executors=scaling.max_executors,
            state_partitions=shuffle_partitions(backfill, conf),
        )

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at once with ``maxExecutors``."""
        return self.most_executors * self.executor_cores

    def driver_fields(self) -> dict[str, Any]:
        """The driver's size, as fields with the names of Spark's properties."""
        return {"cores": self.driver_cores, "memory": self.driver_memory} | _overhead(
            self.driver_overhead
        )

    def executor_fields(self) -> dict[str, Any]:
        """An executor's size, in the same form."""
        return {"cores": self.executor_cores, "memory": self.executor_memory} | _overhead(
            self.executor_overhead
        )

    def enforced_conf(self) -> dict[str, str]:
        """Properties that the program cannot replace:
        the driver requests executors according to them.
        """
        enforced = {
            "spark.dynamicAllocation.enabled": "false",
            "spark.executor.instances": str(self.executors),
            "spark.executor.cores": str(self.executor_cores),
            "spark.executor.memory": self.executor_memory,
        }
        return enforced if self.state_partitions else enforced | self.partitions()

    def partitions(self) -> dict[str, str]:
        """The property with the number of shuffle partitions, which is that of state."""
        return {SHUFFLE_PARTITIONS: self.state_partitions or str(self.parallelism)}


def _cores(fields: Mapping[str, Any], conf: Mapping[str, str], role: Role) -> int:
    given = fields.get("cores") or conf.get(f"spark.{role}.cores", "1")
    return int(given) if str(given).isdigit() else 1


def _memory(fields: Mapping[str, Any], conf: Mapping[str, str], role: Role) -> str:
    return str(fields.get("memory") or conf.get(f"spark.{role}.memory", _DEFAULT_MEMORY))


def _overhead(raised: str | None) -> dict[str, str]:
    return {"memoryOverhead": raised} if raised else {}
