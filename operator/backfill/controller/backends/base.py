"""What a controller needs of whatever runs the application: a process on this machine, or a child resource on a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backfill.api.backfill import Backfill
from backfill.api.errors import Problem
from backfill.controller.observed import DriverState
from backfill.planning.workspace import Workspace


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
        """The name of what runs an attempt, where one that has it can not be made twice; None where there are no names."""

    def start(self, launch: Launch) -> None:
        """Starts the driver of an attempt."""

    def observe(self, attempt: int) -> DriverState:
        """What became of an attempt's driver. Cheap: asked many times a second."""

    def kill(self, attempt: int) -> None:
        """Ends an attempt's driver at once, with everything it started."""

    def log_tail(self, attempt: int) -> tuple[str, ...]:
        """The last lines of an attempt's log."""
