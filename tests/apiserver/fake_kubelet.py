"""Plays the kubelet for the pods of jobs: their program runs on this machine, with the pod's
identity.
"""

import base64
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import forked_job
from rest import Manifest, Rest

from backfill.controller.cluster.job_pods import pod_main as job
from backfill.controller.cluster.job_pods.pod_manifests import JOB_DIRECTORY, JOB_LABEL
from waiting import PATIENCE_SECONDS, eventually

_LOOK_SECONDS = 0.1
# read from the environment once, when it is imported
_KUBECONFIG = "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "backfill.controller.cluster.job_pods.pod_main",
        "backfill.outputs.cleanup",
        "backfill.outputs.publication",
        "backfill.outputs.undo_publication",
        "backfill.planning.planner",
        "pyiceberg.catalog.sql",
    ]
)
"""Jobs are forked from a process that has imported what they need, which is most of what a job on a
few rows computes.
"""


@dataclass
class FakeKubelet:
    """Of one namespace."""

    admin: Rest
    namespace: str
    kubeconfig: Path
    """Of the pods' service account."""
    directory: Path
    code: Path | None = None
    """Where Python finds another version's program of job pods."""

    def pods(self) -> list[Manifest]:
        """The pods of jobs."""
        found = self.admin.get(
            f"api/v1/namespaces/{self.namespace}/pods", labelSelector=JOB_LABEL
        ).expect()
        items: list[Manifest] = found["items"]
        return items

    def pod(self) -> Manifest:
        """The only pod, once it is there."""
        pods: list[Manifest] = eventually(self.pods, "the job's pod")
        assert len(pods) == 1
        return pods[0]

    def run(self, pod: Manifest) -> "subprocess.CompletedProcess[str]":
        """Runs the pod's program to its end."""
        environment = self._environment(pod)
        if self.code is None:
            return self._run_forked(pod, environment)
        return subprocess.run(
            [sys.executable, "-m", "backfill.job"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def _run_forked(
        self, pod: Manifest, environment: dict[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        directory = Path(tempfile.mkdtemp(dir=self.directory / pod["metadata"]["name"]))
        files = (directory / "out", directory / "err")
        process = _FORKS.Process(
            target=forked_job.run, args=(environment, str(self.kubeconfig), files)
        )
        process.start()
        process.join(PATIENCE_SECONDS)
        status = process.exitcode
        process.kill()
        assert status is not None, "the job does not end"
        printed = [file.read_text() for file in files]
        return subprocess.CompletedProcess("backfill.job", status, *printed)

    def run_here(self, pod: Manifest) -> None:
        """Runs the pod's program in this process, which knows the catalogs already, and tells that
        it has ended. This process plays drivers as well, whose watches may be silent for longer
        than an answer to a job.
        """
        here = (
            patch.dict(os.environ, self._environment(pod)),
            patch(_KUBECONFIG, str(self.kubeconfig)),
        )
        with here[0], here[1], patch.object(job, "bound_answers"):
            self._tell_end(pod, job.main())

    def waiting(self) -> list[Manifest]:
        """The pods that have not begun and are not being deleted."""
        pods = ((pod, pod["metadata"], pod["status"]) for pod in self.pods())
        return [
            pod
            for pod, metadata, status in pods
            if "deletionTimestamp" not in metadata and status["phase"] == "Pending"
        ]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While the block runs, every pod's program is run."""
        over = threading.Event()

        def work() -> None:
            while not over.wait(_LOOK_SECONDS):
                for pod in self.waiting():
                    self._tell_end(pod, self.run(pod).returncode)

        thread = threading.Thread(target=work, name="kubelet")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def tell(self, pod: Manifest, status: Manifest) -> None:
        """The pod's status."""
        self.admin.patch(self._status_path(pod), {"status": status}).expect()

    def bind(self, pod: Manifest) -> None:
        """The pod gets a node: from then on it stays, when somebody deletes it, until its kubelet
        says that it has ended.
        """
        name = pod["metadata"]["name"]
        binding = {
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        }
        self.admin.create(
            f"api/v1/namespaces/{self.namespace}/pods/{name}/binding", binding
        ).expect()

    def delete(self, pod: Manifest) -> None:
        """Somebody deletes the pod, or its kubelet, which tells so that it has ended."""
        path = f"api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
        self.admin.delete(path, gracePeriodSeconds="0").expect()

    def _tell_end(self, pod: Manifest, exit_code: int) -> None:
        """A pod whose result is known may have been deleted by now."""
        state = {
            "terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
        }
        container = {"name": pod["spec"]["containers"][0]["name"], "image": "app", "imageID": ""}
        ended = {
            "containerStatuses": [container | {"ready": False, "restartCount": 0, "state": state}]
        }
        answer = self.admin.patch(
            self._status_path(pod),
            {"status": ended | {"phase": "Failed" if exit_code else "Succeeded"}},
        )
        assert answer.ok or answer.status == 404, answer.message

    def _status_path(self, pod: Manifest) -> str:
        return f"api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"

    def _environment(self, pod: Manifest) -> dict[str, str]:
        root = self.directory / pod["metadata"]["name"]
        self._mount(pod, root)
        environment = {
            variable["name"]: variable["value"] for variable in pod["spec"]["containers"][0]["env"]
        }
        return environment | {
            "BACKFILL_JOB_DIRECTORY": f"{root}{JOB_DIRECTORY}",
            "BACKFILL_CATALOGS": f"{root}{environment['BACKFILL_CATALOGS']}",
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": os.environ["PATH"],
            **({"PYTHONPATH": str(self.code)} if self.code else {}),
        }

    def _mount(self, pod: Manifest, root: Path) -> None:
        """Writes the files of the ConfigMaps and Secrets that are mounted."""
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for mount in pod["spec"]["containers"][0]["volumeMounts"]:
            place = Path(f"{root}{mount['mountPath']}")
            for key, content in self._content(volumes[mount["name"]]).items():
                place.mkdir(parents=True, exist_ok=True)
                (place / key).write_bytes(base64.b64decode(content))

    def _content(self, volume: Manifest) -> dict[str, str]:
        path = f"api/v1/namespaces/{self.namespace}"
        if "secret" in volume:
            found = self.admin.get(f"{path}/secrets/{volume['secret']['secretName']}").expect()
            return found.get("data") or {}
        if "configMap" in volume:
            return (
                self.admin.get(f"{path}/configmaps/{volume['configMap']['name']}")
                .expect()
                .get("binaryData")
                or {}
            )
        return {}
