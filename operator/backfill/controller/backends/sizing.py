"""How big the pods of a backfill are, whatever place production says it in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from backfill.api.backfill import Backfill

_DEFAULT_MEMORY = "1g"
"""Spark's own."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """Driver and executors."""

    driver_cores: int
    driver_memory: str
    executor_cores: int
    executor_memory: str
    executors: int
    """To start with."""
    most_executors: int

    @classmethod
    def of(cls, driver: Mapping[str, Any], executor: Mapping[str, Any], conf: Mapping[str, str], backfill: Backfill) -> "Sizing":
        """From fields of the resource, or else from its Spark properties, or else Spark's defaults.

        An attempt starts with as many executors as were wanted last.
        """
        scaling = backfill.spec.scaling
        wanted = backfill.status.progress.executor_target or scaling.min_executors
        return cls(
            driver_cores=_cores(driver, conf, "driver"),
            driver_memory=_memory(driver, conf, "driver"),
            executor_cores=_cores(executor, conf, "executor"),
            executor_memory=_memory(executor, conf, "executor"),
            executors=min(max(wanted, scaling.min_executors), scaling.max_executors),
            most_executors=scaling.max_executors,
        )

    @property
    def parallelism(self) -> int:
        """Tasks that run at once with as many executors as are allowed."""
        return self.most_executors * self.executor_cores

    def enforced_conf(self) -> dict[str, str]:
        """Properties that hold even where the program sets others: executors are asked for by the driver, as they say."""
        return {
            "spark.dynamicAllocation.enabled": "false",
            "spark.executor.instances": str(self.executors),
            "spark.executor.cores": str(self.executor_cores),
            "spark.executor.memory": self.executor_memory,
            "spark.sql.shuffle.partitions": str(self.parallelism),
        }


def _cores(fields: Mapping[str, Any], conf: Mapping[str, str], role: Literal["driver", "executor"]) -> int:
    given = fields.get("cores") or conf.get(f"spark.{role}.cores", "1")
    return int(given) if str(given).isdigit() else 1


def _memory(fields: Mapping[str, Any], conf: Mapping[str, str], role: Literal["driver", "executor"]) -> str:
    return str(fields.get("memory") or conf.get(f"spark.{role}.memory", _DEFAULT_MEMORY))
