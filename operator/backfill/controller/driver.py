"""Interface to whatever runs the application: a process on this machine, or a child
SparkApplication on a cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, Protocol

from backfill.api.backfill import Backfill
from backfill.api.errors import Problem
from backfill.api.output import Output
from backfill.api.spark_application import Application
from backfill.api.spec import BackfillSpec
from backfill.planning.workspace import Workspace
from backfill.protocol.driver_settings import DriverSettings
from backfill.protocol.hand_off_messages import HandOffSettings

CHECKPOINT_LOCATION: Final = "spark.sql.streaming.checkpointLocation"
QUOTA_EXCEEDED: Final = "QuotaExceeded"
"""Reason of a driver whose pod a ResourceQuota keeps from being created."""
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_SPARKS_SHUFFLE_PARTITIONS = "200"
"""Spark's default."""


@dataclass(frozen=True, slots=True)
class DriverState:
    """State of the current attempt's driver, as its backend observes it."""

    phase: Literal["Absent", "Pending", "Running", "Exited"] = "Absent"
    """``Absent``: no trace of it exists. ``Pending``: requested, but its program does not run yet.
    ``Exited``: it was started, and nothing of it is left.
    """
    exit_status: int | None = None
    """Exit status; None if unknown. Negative: the signal that killed it."""
    log_tail: tuple[str, ...] = ()
    """The last lines of its log, once it has exited."""
    reason: str = ""
    """Why it is pending or has exited, in one word, such as ``ImagePullBackOff``, ``Unschedulable``
    or ``OOMKilled``.
    """
    message: str = ""
    """The reason in words."""
    since: datetime | None = None
    """When it entered this phase, by the cluster's clock; None if unknown."""
    outdated: bool = False
    """Whether it cannot start, and was made from a SparkApplication that has changed since."""

    @property
    def alive(self) -> bool:
        """Whether it runs or may still start."""
        return self.phase in ("Pending", "Running")


@dataclass(frozen=True, slots=True)
class Launch:
    """Input for the start of a driver."""

    attempt: int
    backfill: Backfill
    plan_id: str
    plan: Workspace
    checkpoints: Workspace


class Backend(Protocol):
    """Runs drivers, one at a time for each Backfill.

    Keeps no state that a restarted controller would lack.
    """

    @property
    def parallelism(self) -> int:
        """Number of tasks that can run at once."""

    @property
    def application(self) -> Application | None:
        """The application; None if there is none yet."""

    def obstacles(self) -> Sequence[Problem]:
        """Why no driver can be started at all. Checked before planning and before each attempt."""

    def child(self, attempt: int) -> str | None:
        """Name of the object that runs an attempt, which keeps
        it from being created twice; None if there is none.
        """

    def start(self, launch: Launch) -> None:
        """Starts the driver of an attempt."""

    def observe(self, attempt: int) -> DriverState:
        """State of an attempt's driver. Cheap: it is called many times a second."""

    def kill(self, attempt: int) -> None:
        """Kills an attempt's driver and everything that it started."""

    def log_tail(self, attempt: int) -> tuple[str, ...]:
        """The last lines of an attempt's log."""


def driver_settings(
    launch: Launch,
    *,
    channel: str,
    main_file: str,
    arguments: tuple[str, ...],
    spark_conf: Mapping[str, str],
    spark_defaults: Mapping[str, str] = MappingProxyType({}),
    production_conf: Mapping[str, str] = MappingProxyType({}),
) -> DriverSettings:
    """Settings of one attempt. The arguments are what its backend decides, and production's Spark
    properties.
    """
    backfill = launch.backfill
    return DriverSettings(
        backfill=backfill.metadata.name,
        namespace=backfill.metadata.namespace,
        uid=backfill.metadata.uid,
        kept_in=backfill.metadata.kept_in,
        attempt=launch.attempt,
        plan_id=launch.plan_id,
        plan=launch.plan.uri,
        checkpoints=launch.checkpoints.uri,
        workspace_catalog=launch.plan.catalog,
        channel=channel,
        window=backfill.spec.window,
        sources=backfill.spec.sources,
        outputs=_outputs(backfill),
        ignored_queries=backfill.spec.ignored_queries,
        allowed_effects=backfill.spec.allowed_effects,
        deliver={each.name: each.staged_snapshot_id or 0 for each in backfill.status.delivering},
        execution="Streaming" if _only_streams(backfill.spec) else backfill.spec.execution,
        max_rows_per_second=backfill.spec.max_rows_per_second,
        hand_off=_hand_off(backfill, production_conf),
        main_file=main_file,
        arguments=arguments,
        spark_conf=dict(spark_conf),
        spark_defaults=dict(spark_defaults),
    )


def _only_streams(spec: BackfillSpec) -> bool:
    """Whether queries must be run as streams, which keep state, and read every row once."""
    return spec.hand_off is not None or spec.max_rows_per_second is not None


def _hand_off(backfill: Backfill, production_conf: Mapping[str, str]) -> HandOffSettings | None:
    wanted, handed = backfill.spec.hand_off, backfill.status.hand_off
    if wanted is None:
        return None
    return HandOffSettings(
        state_partitions=wanted.state_partitions,
        checkpoint_location=production_conf.get(CHECKPOINT_LOCATION),
        starting_timestamp_margin=wanted.starting_timestamp_margin,
        deployed=wanted.start == "Deploy",
        growing=bool(handed is not None and handed.growing),
    )


def shuffle_partitions(backfill: Backfill, production_conf: Mapping[str, str]) -> str | None:
    """Number of shuffle partitions that history is read with unless the program sets another, since
    its state keeps them; None if any number will do.
    """
    wanted = backfill.spec.hand_off
    if wanted is None or wanted.state_partitions is not None:
        return None
    return production_conf.get(SHUFFLE_PARTITIONS, _SPARKS_SHUFFLE_PARTITIONS)


def _outputs(backfill: Backfill) -> tuple[Output, ...]:
    """The outputs of the spec. One that is published, or is being delivered, is not compared again:
    production has its rows now, and the report would say so instead of what it was published with.
    """
    published = {each.name for each in backfill.status.outputs if each.is_published}
    published |= {each.name for each in backfill.status.delivering}
    return tuple(
        output.model_copy(update={"validate_": None}) if output.name in published else output
        for output in backfill.spec.outputs
    )
