"""What a controller needs of whatever runs the application: a process on this machine, or a child resource on a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Literal, Protocol

from backfill.api.backfill import Backfill
from backfill.api.errors import Problem
from backfill.planning.workspace import Workspace
from backfill.protocol.driver_settings import DriverSettings


@dataclass(frozen=True, slots=True)
class DriverState:
    """The driver of the current attempt, as its backend sees it."""

    phase: Literal["Absent", "Pending", "Running", "Exited"] = "Absent"
    """``Absent``: there is no trace of it. ``Pending``: asked for, but its program does not run yet.
    ``Exited``: it was started, and nothing of it is left."""
    exit_status: int | None = None
    """How it exited; None where that was not seen. Negative: the signal that killed it."""
    log_tail: tuple[str, ...] = ()
    """The last lines of its log, once it has exited."""
    reason: str = ""
    """Why it is pending or has exited, in one word, such as ``ImagePullBackOff``, ``Unschedulable`` or ``OOMKilled``."""
    message: str = ""
    """The same for people."""
    since: datetime | None = None
    """Since when it is in this phase, by the cluster's clock; None where that is not known."""

    @property
    def alive(self) -> bool:
        """Whether there is anything of it that works or may begin to."""
        return self.phase in ("Pending", "Running")


@dataclass(frozen=True, slots=True)
class Launch:
    """What a driver is started for."""

    attempt: int
    backfill: Backfill
    plan_id: str
    plan: Workspace
    checkpoints: Workspace


class Backend(Protocol):
    """Runs drivers, one at a time for each Backfill. Everything can be asked again after a restart of the controller."""

    @property
    def parallelism(self) -> int:
        """Tasks that can run at once."""

    def obstacles(self) -> Sequence[Problem]:
        """Why no driver can be started here at all; asked before planning and before each attempt."""

    def child(self, attempt: int) -> str | None:
        """The name of what runs an attempt, where one that has it cannot be made twice; None where there are no names."""

    def start(self, launch: Launch) -> None:
        """Starts the driver of an attempt."""

    def observe(self, attempt: int) -> DriverState:
        """What became of an attempt's driver. Cheap: asked many times a second."""

    def kill(self, attempt: int) -> None:
        """Ends an attempt's driver at once, with everything it started."""

    def log_tail(self, attempt: int) -> tuple[str, ...]:
        """The last lines of an attempt's log."""


def driver_settings(
    launch: Launch,
    *,
    channel: str,
    scratch: str,
    main_file: str,
    arguments: tuple[str, ...],
    spark_conf: Mapping[str, str],
    spark_defaults: Mapping[str, str] = MappingProxyType({}),
) -> DriverSettings:
    """The settings of one attempt; the arguments are what its backend decides."""
    backfill = launch.backfill
    return DriverSettings(
        backfill=backfill.metadata.name,
        namespace=backfill.metadata.namespace,
        uid=backfill.metadata.uid,
        attempt=launch.attempt,
        plan_id=launch.plan_id,
        plan=launch.plan.uri,
        checkpoints=launch.checkpoints.uri,
        workspace_catalog=launch.plan.catalog,
        channel=channel,
        scratch=scratch,
        window=backfill.spec.window,
        sources=backfill.spec.sources,
        outputs=backfill.spec.outputs,
        ignored_queries=backfill.spec.ignored_queries,
        main_file=main_file,
        arguments=arguments,
        spark_conf=dict(spark_conf),
        spark_defaults=dict(spark_defaults),
    )
