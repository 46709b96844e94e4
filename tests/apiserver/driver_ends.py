"""Both ends of a SplitAssignment: the driver's is the real one, the controller's is played by the
test.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubeconfigs import address_and_ca, token_of
from proxy import UnreliableProxy, refusal
from rest import SPLIT_ASSIGNMENTS, Manifest, Rest

from backfill.kube.client import Cluster
from backfill.kube.service_account import service_account
from backfill.protocol.split_assignment import QueryProgress, SourceProgress, SplitAssignmentStatus
from backfill.runtime.agent.kubernetes_channel import REQUESTS, KubernetesChannel, Timing
from backfill.runtime.settings import RuntimeSettings
from waiting import eventually

QUICK = Timing(
    heartbeat=0.5,
    between_reports=0.02,
    first_retry=0.02,
    last_retry=0.1,
    refused_at_start=0.3,
    patience=1.0,
)
PATIENT = Timing(
    heartbeat=0.5, between_reports=0.02, first_retry=0.02, last_retry=0.1, patience=20.0
)
PLAN = "plan-1"
ChannelMaker = Callable[..., KubernetesChannel]
_CREATED = "2026-01-01T00:00:00Z"


@dataclass
class PlayedController:
    """Writes the spec of one SplitAssignment and reads its status, as a user who may do
    everything.
    """

    admin: Rest
    namespace: str
    name: str = "b"
    owner_uid: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def path(self) -> str:
        return f"{SPLIT_ASSIGNMENTS.format(self.namespace)}/{self.name}"

    def create(self, attempt: int = 1, released: int = 1) -> None:
        self.admin.create(
            SPLIT_ASSIGNMENTS.format(self.namespace), self._manifest(attempt, released)
        ).expect()

    def write(self, **spec: Any) -> None:
        self.admin.patch(self.path, {"spec": spec}).expect()

    def delete(self) -> None:
        self.admin.delete(self.path)

    @property
    def status(self) -> Manifest:
        return dict(self.admin.get(self.path).expect().get("status", {}))

    @property
    def managers(self) -> dict[str, str]:
        """Who manages which part."""
        fields = self.admin.get(self.path).expect()["metadata"]["managedFields"]
        return {each["manager"]: each.get("subresource", "") for each in fields}

    def _manifest(self, attempt: int, released: int) -> Manifest:
        owner = {
            "apiVersion": "backfill.dev/v1alpha1",
            "kind": "Backfill",
            "name": self.name,
            "uid": self.owner_uid,
        }
        return {
            "apiVersion": "backfill.dev/v1alpha1",
            "kind": "SplitAssignment",
            "metadata": {
                "name": self.name,
                "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {
                "backfill": self.name,
                "planId": PLAN,
                "attempt": attempt,
                "steps": 100,
                "released": released,
                "watermark": _CREATED,
            },
        }


@dataclass(frozen=True)
class Connection:
    """The address of the API server, and the files of a service account."""

    url: str
    directory: Path

    @property
    def token_file(self) -> Path:
        return self.directory / "token"

    def cluster(self) -> Cluster:
        """The client that a driver's pod has."""
        return Cluster(service_account(self.url, self.directory), options=REQUESTS)


def driver_connection(kubeconfig: Path, directory: Path) -> Connection:
    """The files and the address that a pod with this identity has."""
    directory.mkdir(exist_ok=True)
    url, certificates = address_and_ca(kubeconfig)
    (directory / "token").write_text(token_of(kubeconfig))
    (directory / "ca.crt").write_bytes(certificates)
    (directory / "namespace").write_text("default")
    return Connection(url, directory)


def driver_settings(controller: PlayedController, attempt: int = 1, **more: Any) -> RuntimeSettings:
    """What a driver of this Backfill is told when it starts."""
    fields = {
        "backfill": controller.name,
        "namespace": controller.namespace,
        "uid": controller.owner_uid,
        "attempt": attempt,
        "planId": PLAN,
        "plan": "/plan",
        "checkpoints": "/checkpoints",
        "channel": f"kubernetes:{controller.name}",
        "window": {"start": _CREATED, "end": "2026-01-02T00:00:00Z"},
        "sources": [],
        "outputs": [],
        "mainFile": "main.py",
    }
    return RuntimeSettings.model_validate(fields | more)


def driver_channel(
    connection: Connection, controller: PlayedController, attempt: int = 1, timing: Timing = PATIENT
) -> KubernetesChannel:
    """The channel of a driver, not yet opened."""
    return KubernetesChannel(
        connection.cluster(), controller.name, driver_settings(controller, attempt), timing
    )


def progress(committed: int, attempt: int = 1, **more: Any) -> SplitAssignmentStatus:
    """The report of a driver that has committed this many steps."""
    query = QueryProgress(
        name="q",
        output="o",
        sources=(SourceProgress(name="s", committed=committed, rows=committed),),
    )
    fields = {
        "attempt": attempt,
        "phase": "Running",
        "queries": (query,),
        "executors": 1,
        "heartbeat": datetime.now(UTC),
    }
    return SplitAssignmentStatus(**{**fields, **more})


def committed_in(status: Manifest) -> int | None:
    """How many steps a stored status says are committed."""
    queries = status.get("queries", [])
    return int(queries[0]["sources"][0]["committed"]) if queries else None


def await_released(channel: KubernetesChannel, released: int) -> None:
    """Waits until the driver knows of this release."""
    eventually(
        lambda: (spec := channel.assignment()) is not None and spec.released == released,
        f"{released} released",
    )


def await_committed(controller: PlayedController, committed: int) -> None:
    """Waits until the controller can know of these steps."""
    eventually(lambda: committed_in(controller.status) == committed, f"{committed} committed")


def hear_nothing(proxy: UnreliableProxy) -> None:
    """The driver can write and does not hear of anything any more."""
    proxy.before = lambda request: (
        refusal(503, "ServiceUnavailable") if request.verb in ("watch", "get") else None
    )
    proxy.kill_watches()
