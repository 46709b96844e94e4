"""A Backfill of a real table, and the parts of a cluster that do not run here: the Spark operator,
the kubelet, the driver.
"""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rest import BACKFILLS, SPARK_APPLICATIONS, SPLIT_ASSIGNMENTS, Manifest, Rest

from backfill.kube.object_names import child_name
from backfill.protocol.split_assignment import DRIVER_MANAGER
from manifests import spark_application
from table_jobs import HOURS, Clicks
from waiting import PATIENCE_SECONDS, eventually

HOUR_ROWS = 60
_PODS = "api/v1/namespaces/{}/pods"


class PlayedRun:
    """One Backfill, and whoever has to do something for it."""

    def __init__(
        self,
        admin: Rest,
        namespace: str,
        folder: Path,
        name: str = "january",
        clicks: Clicks | None = None,
    ):
        """The table, unless it is given, the Secret of its catalog and the production application
        are made.
        """
        self.admin, self.namespace, self.name = admin, namespace, name
        self._folder = folder
        self.workspace = folder / "work"
        self.path = f"{BACKFILLS.format(namespace)}/{name}"
        self.clicks = clicks or Clicks(folder / f"lake-{name}")
        secret = {"metadata": {"name": f"{name}-catalog"}, "stringData": self.clicks.properties}
        admin.create(f"api/v1/namespaces/{namespace}/secrets", secret).expect()
        admin.apply(f"{SPARK_APPLICATIONS.format(namespace)}/app", self._production()).expect()

    def create(self, **spec: Any) -> Manifest:
        """The Backfill."""
        place = {"workspace": str(self.workspace)}
        catalogs = {"catalogs": [{"name": "lake", "secretRef": {"name": f"{self.name}-catalog"}}]}
        manifest = {
            "apiVersion": "backfill.dev/v1alpha1",
            "kind": "Backfill",
            "metadata": {"name": self.name},
            "spec": self.clicks.spec.to_manifest() | place | catalogs | spec,
        }
        return self.admin.create(BACKFILLS.format(self.namespace), manifest).expect()

    @property
    def status(self) -> Manifest:
        return dict(self.admin.get(self.path).expect().get("status", {}))

    def condition(self, kind: str) -> tuple[str, str]:
        """A condition's status and reason."""
        conditions = {each["type"]: each for each in self.status.get("conditions", [])}
        return (
            (conditions[kind]["status"], conditions[kind]["reason"])
            if kind in conditions
            else ("", "")
        )

    def wait_for(self, kind: str, status: str, seconds: float = PATIENCE_SECONDS) -> str:
        """Waits for a condition, and gives its reason."""
        eventually(
            lambda: self.condition(kind)[0] == status, f"{kind}={status} of {self.name}", seconds
        )
        return self.condition(kind)[1]

    def assignment(self) -> Manifest:
        return dict(
            self.admin.get(f"{SPLIT_ASSIGNMENTS.format(self.namespace)}/{self.name}").expect()[
                "spec"
            ]
        )

    def submit(self, attempt: int = 1, seconds: float = PATIENCE_SECONDS) -> Manifest:
        """The Spark operator takes a child up once it is there: its driver runs."""
        child_path = f"{SPARK_APPLICATIONS.format(self.namespace)}/{child_name(self.name, attempt)}"
        eventually(
            lambda: self.admin.get(child_path).ok, f"child {attempt} of {self.name}", seconds
        )
        child = self.admin.get(child_path).expect()
        self._say_of_child(attempt, "SUBMITTED")
        labels = child["spec"]["driver"]["labels"] | {"spark-role": "driver"}
        container = {"name": "spark-kubernetes-driver", "image": "none"}
        metadata = {"name": f"{child['metadata']['name']}-driver", "labels": labels}
        pod = {"metadata": metadata, "spec": {"containers": [container], "restartPolicy": "Never"}}
        self.admin.create(_PODS.format(self.namespace), pod).expect()
        self._say_of_pod(attempt, "Running", {"running": {"startedAt": _now()}})
        self._say_of_child(attempt, "RUNNING")
        return child

    def report(self, attempt: int, committed: int, phase: str = "Running", **more: Any) -> None:
        """The driver tells how far it is, and more."""
        rows = HOUR_ROWS * min(committed, HOURS)
        source = {"name": "clicks", "committed": committed, "rows": rows}
        query = {"name": "counts", "sources": [source], "openAtEnd": 0}
        status = {
            "attempt": attempt,
            "phase": phase,
            "queries": [query],
            "executors": 1,
            "heartbeat": _now(),
            **more,
        }
        path = f"{SPLIT_ASSIGNMENTS.format(self.namespace)}/{self.name}/status"
        self.admin.patch(path, {"status": status}, fieldManager=DRIVER_MANAGER).expect()

    def replay(
        self,
        attempt: int = 1,
        committed: int = 0,
        seconds: float = PATIENCE_SECONDS,
        **at_the_end: Any,
    ) -> None:
        """The driver commits each step as soon as it is released, tells that it has finished, and
        what else there is to tell, and ends.
        """
        steps = self.assignment()["steps"]
        self.report(attempt, committed)
        while committed < steps:
            eventually(
                lambda at=committed: self.assignment()["released"] > at,
                f"step {committed + 1} is released",
                seconds,
            )
            committed += 1
            self.report(attempt, committed)
        self.report(attempt, steps + 1, "Finished", **at_the_end)
        self.end(attempt)

    def end(self, attempt: int, exit_code: int = 0) -> None:
        """The driver's pod ends, and the Spark operator notices."""
        ended = {
            "exitCode": exit_code,
            "reason": "Completed" if exit_code == 0 else "Error",
            "finishedAt": _now(),
        }
        self._say_of_pod(attempt, "Failed" if exit_code else "Succeeded", {"terminated": ended})
        self._say_of_child(attempt, "FAILED" if exit_code else "COMPLETED")

    def children(self) -> list[str]:
        """The names of the SparkApplications that were made for it."""
        items = self.admin.get(SPARK_APPLICATIONS.format(self.namespace)).expect()["items"]
        names = [item["metadata"]["name"] for item in items]
        return sorted(name for name in names if name.startswith(f"{self.name}-a"))

    def _say_of_child(self, attempt: int, state: str) -> None:
        path = (
            f"{SPARK_APPLICATIONS.format(self.namespace)}/{child_name(self.name, attempt)}/status"
        )
        self.admin.patch(
            path, {"status": {"applicationState": {"state": state}, "driverInfo": {}}}
        ).expect()

    def _say_of_pod(self, attempt: int, phase: str, state: Manifest) -> None:
        container = {
            "name": "spark-kubernetes-driver",
            "image": "none",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
        }
        path = f"{_PODS.format(self.namespace)}/{child_name(self.name, attempt)}-driver/status"
        self.admin.patch(
            path, {"status": {"phase": phase, "containerStatuses": [container | {"state": state}]}}
        ).expect()

    def _production(self) -> Manifest:
        volume = {"name": "work", "hostPath": {"path": str(self._folder)}}
        mount = {"name": "work", "mountPath": str(self._folder)}
        pod = {"cores": 1, "memory": "1g", "volumeMounts": [mount]}
        return spark_application(
            image="none",
            mainApplicationFile="local:///opt/app/main.py",
            volumes=[volume],
            driver=pod | {"serviceAccount": "spark"},
            executor=pod | {"instances": 1},
        )


def wait_until_quiet(admin: Rest, path: str, seconds: float = 1.0) -> str:
    """The version of an object that nobody has written for some time."""
    seen, since = "", time.monotonic()
    while time.monotonic() - since < seconds:
        version = str(admin.get(path).expect()["metadata"]["resourceVersion"])
        if version != seen:
            seen, since = version, time.monotonic()
        time.sleep(0.05)
    return seen


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
