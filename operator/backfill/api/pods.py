"""Pods in the spec of a Backfill: how many executors run, what differs from production's pods, and
where jobs run.
"""

from typing import Annotated, Final, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from backfill.api.base import Model
from backfill.api.json_text import is_within
from backfill.api.quantities import ByteSize, Duration, parse_bytes

QUANTITY_PATTERN = r"^[1-9]\d*(Ki|Mi|Gi|Ti|k|M|G|T)?$"
CPU_PATTERN = r"^(0\.[1-9]\d{0,2}|[1-9]\d{0,2}(\.\d{1,3})?|[1-9]\d{1,5}m)$"
MEMORY_PATTERN = r"^\d+[kKmMgGtT]?$"

LEAST_JOB_MEMORY: Final = 128 * 2**20
"""In bytes. A job's program takes about 90 MiB before it opens a table."""
MOST_OVERRIDE_LEVELS: Final = 100
"""Of lists and mappings within each other in a field that overrides production's: half of what is
read of any object.
"""
MOST_OVERRIDE_VALUES: Final = 5_000
"""In such a field. The operator keeps all Backfills in memory."""


def override_is_readable(value: object) -> bool:
    """Whether a field that overrides production's is no larger than a field of a pod can be."""
    return is_within(value, levels=MOST_OVERRIDE_LEVELS, values=MOST_OVERRIDE_VALUES)


class Scaling(Model):
    """Number of executors of the run."""

    min_executors: Annotated[int, Field(ge=1, le=10000)] = 1
    """Minimum number of executors. Must not be greater than ``maxExecutors``."""
    max_executors: Annotated[int, Field(ge=1, le=10000)] = 1
    """Maximum number of executors. ``kubectl scale`` sets this field."""
    complete_within: Duration | None = None
    """Target duration of the run. The number of executors is then adjusted to the measured rate,
    between ``minExecutors`` and ``maxExecutors``. Until a rate has been measured, ``Streaming``
    execution uses the minimum and ``Batch`` execution the maximum. Default: none; ``maxExecutors``
    is used throughout.
    """

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.min_executors > self.max_executors:
            raise PydanticCustomError(
                "scaling_bounds",
                "minExecutors {low} is greater than maxExecutors {high}; raise maxExecutors or"
                " lower minExecutors",
                {"low": self.min_executors, "high": self.max_executors},
            )
        return self


class PodOverrides(Model):
    """Fields of the production SparkApplication's driver or executor to override. Any of its fields
    may be set. Mappings are merged field by field and lists of named items by name; other lists are
    replaced, and ``null`` removes a field.
    """

    model_config = {"extra": "allow"}

    cores: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of CPU cores of each pod."""
    memory: Annotated[str, Field(pattern=MEMORY_PATTERN, max_length=20)] | None = None
    """Memory of each pod, in Spark's notation, such as ``4g``."""

    @model_validator(mode="after")
    def _shallow(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if not override_is_readable(value):
                raise PydanticCustomError(
                    "nesting",
                    "{field} is nested more than {levels} levels deep or has more than {values}"
                    " values, which no field of a pod does; set only fields of the"
                    " SparkApplication",
                    {
                        "field": name,
                        "levels": MOST_OVERRIDE_LEVELS,
                        "values": f"{MOST_OVERRIDE_VALUES:,}",
                    },
                )
        return self


class Overrides(Model):
    """Settings that differ from production, merged over the production SparkApplication."""

    driver: PodOverrides = PodOverrides()
    """Overrides of the driver."""
    executor: PodOverrides = PodOverrides()
    """Overrides of the executors."""
    spark_conf: Annotated[
        dict[str, Annotated[str, Field(max_length=65536)]], Field(max_length=256)
    ] = Field(default_factory=dict)
    """Spark properties to add or replace. They take precedence over properties set by the
    application. Properties that would break the run, such as ``spark.master``, are refused.
    """


class PodResources(Model):
    """Compute resources of a job pod."""

    cpu: Annotated[str, Field(pattern=CPU_PATTERN, max_length=10)] | None = None
    """CPU request and limit, in cores, such as ``2`` or ``500m``. Default: a request of 250m and a
    limit of 2.
    """
    memory: Annotated[str, Field(pattern=QUANTITY_PATTERN, max_length=20)] = "2Gi"
    """Memory request and limit, in bytes or with a suffix such as ``Gi``. At least 128Mi. Planning
    a million files takes about 1Gi.
    """
    ephemeral_storage: Annotated[str, Field(pattern=QUANTITY_PATTERN, max_length=20)] = "1Gi"
    """Request and limit of disk space on the node for scratch files and the log, in bytes or with a
    suffix such as ``Gi``.
    """

    @field_validator("memory")
    @classmethod
    def _enough_to_begin(cls, memory: str) -> str:
        if parse_bytes(memory) < LEAST_JOB_MEMORY:
            raise PydanticCustomError(
                "too_little", "is too little for a job to start; set at least 128Mi"
            )
        return memory


class PlanningOptions(Model):
    """How the plan is made, and the pods that make it and do the operator's other jobs."""

    resources: PodResources = PodResources()
    """Compute resources of job pods."""
    target_step_bytes: ByteSize | None = None
    """Maximum number of bytes to read in a step where data is dense; a batch job reads about three
    times as many. Default: about ten seconds of work for ``maxExecutors``.
    """
