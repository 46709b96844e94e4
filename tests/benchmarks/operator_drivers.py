"""Drivers that only talk: each has the runtime's own channel and a driver's own permissions, and
commits on a timetable.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from driver_ends import Connection, PlayedController, driver_connection, driver_settings
from identities import kubeconfig_of, service_account
from operator_world import NAMESPACES, SOURCES, STEP_ROWS, STEPS, Placed, header, namespace_of
from rest import Rest
from roles import rules_of

from backfill.protocol.split_assignment import QueryProgress, SourceProgress, SplitAssignmentStatus
from backfill.runtime.agent.kubernetes_channel import KubernetesChannel, Timing

_LOOK_SECONDS = 0.02
_TASK_SECONDS = 8.0
"""Time at work that each step adds."""


@dataclass
class TalkingDriver:
    """One driver, and when it has what to say."""

    channel: KubernetesChannel
    commits_at: float
    committed: int = 0
    spoke_at: float = 0.0
    waits_for: int | None = None
    """The release that its last commit should bring."""

    def speak(self, now: float) -> None:
        """A report of all that is committed."""
        reads = tuple(
            SourceProgress(name=name, committed=self.committed, rows=self.committed * STEP_ROWS)
            for name in SOURCES
        )
        self.channel.report(
            SplitAssignmentStatus(
                attempt=1,
                phase="Running",
                queries=(QueryProgress(name="summary", output="summary", sources=reads),),
                executors=4,
                heartbeat=datetime.now(UTC),
                processing_seconds=self.committed * _TASK_SECONDS,
            )
        )
        self.spoke_at = now


@dataclass
class Drivers:
    """All of them, in turn."""

    drivers: list[TalkingDriver]
    period: float
    """Seconds between two commits of one driver: with all of them, one step a second."""
    commits: int = 0
    held_up: int = 0
    """Commits that were due and had to wait for a release."""
    reports: int = 0
    release_seconds: list[float] = field(default_factory=list)
    """From each commit to the driver's knowing of the next release."""

    def begin(self) -> None:
        """The first report of each."""
        for driver in self.drivers:
            driver.speak(time.monotonic())

    def talk(self, seconds: float) -> None:
        """Commits and heartbeats, for so long."""
        began = time.monotonic()
        for number, driver in enumerate(self.drivers):
            driver.commits_at = began + (number + 0.5) * self.period / len(self.drivers)
            driver.spoke_at = (
                began - (number / len(self.drivers)) * driver.channel.heartbeat_seconds
            )
        while (now := time.monotonic()) - began < seconds:
            for driver in self.drivers:
                self._look(driver, now)
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        for driver in self.drivers:
            driver.channel.close()

    def _look(self, driver: TalkingDriver, now: float) -> None:
        assignment = driver.channel.assignment()
        released = assignment.released if assignment else 0
        if driver.waits_for is not None and released >= driver.waits_for:
            self.release_seconds.append(now - driver.spoke_at)
            driver.waits_for = None
        if now >= driver.commits_at:
            if released <= driver.committed:
                self.held_up += 1
            else:
                driver.committed += 1
                driver.waits_for = min(released + 1, STEPS)
                self.commits += 1
                self._speak(driver, now)
            driver.commits_at += self.period
        elif now - driver.spoke_at >= driver.channel.heartbeat_seconds:
            self._speak(driver, now)

    def _speak(self, driver: TalkingDriver, now: float) -> None:
        driver.speak(now)
        self.reports += 1


def drivers_of(
    admin: Rest, admin_kubeconfig: Path, placed: Sequence[Placed], folder: Path
) -> Drivers:
    """A driver for every Backfill that is being read."""
    connections = {
        namespace: driver_connection(
            account_of(admin, admin_kubeconfig, namespace, folder), folder / namespace
        )
        for namespace in map(namespace_of, range(NAMESPACES))
    }
    active = [each for each in placed if each.active]
    drivers = [
        TalkingDriver(_channel(admin, connections[each.namespace], each), 0.0) for each in active
    ]
    return Drivers(drivers, period=float(len(active)))


def account_of(admin: Rest, admin_kubeconfig: Path, namespace: str, folder: Path) -> Path:
    """A kubeconfig with the service account of a namespace's drivers and jobs, which is made."""
    service_account(
        admin, namespace, "spark", rules_of("driver.yaml", "Role", "backfill-driver"), []
    )
    path = folder / f"{namespace}.kubeconfig"
    return kubeconfig_of(admin, admin_kubeconfig, namespace, "spark", path)


def _channel(admin: Rest, connection: Connection, placed: Placed) -> KubernetesChannel:
    controller = PlayedController(admin, placed.namespace, placed.name, placed.uid)
    settings = driver_settings(controller, planId=header().plan_id)
    channel = KubernetesChannel(connection.cluster(), placed.name, settings, Timing())
    channel.open()
    return channel
