"""Plays the kubelet for the pods of jobs: their program runs as a process of this machine, with the pod's identity."""

import base64
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rest import Manifest, Rest, eventually

from backfill.controller.kubernetes.job_pod import JOB_DIRECTORY, JOB_LABEL


@dataclass
class Kubelet:
    """Of one namespace."""

    admin: Rest
    namespace: str
    kubeconfig: Path
    """Of the pods' service account."""
    directory: Path

    def pods(self) -> list[Manifest]:
        """The pods of jobs."""
        found = self.admin.get(f"api/v1/namespaces/{self.namespace}/pods", labelSelector=JOB_LABEL).expect()
        items: list[Manifest] = found["items"]
        return items

    def pod(self) -> Manifest:
        """The only pod, once it is there."""
        pods: list[Manifest] = eventually(self.pods, "the job's pod")
        assert len(pods) == 1
        return pods[0]

    def run(self, pod: Manifest) -> "subprocess.CompletedProcess[str]":
        """Runs the pod's program to its end."""
        mounted = self._mounted(pod)
        environment = {variable["name"]: variable["value"] for variable in pod["spec"]["containers"][0]["env"]}
        environment |= {
            "BACKFILL_JOB_DIRECTORY": str(mounted[JOB_DIRECTORY]),
            "BACKFILL_CATALOGS": str(self.directory / environment["BACKFILL_CATALOGS"].lstrip("/")),
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": os.environ["PATH"],
        }
        command = [sys.executable, "-m", "backfill.controller.kubernetes.job"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def tell(self, pod: Manifest, status: Manifest) -> None:
        """The pod's status."""
        path = f"api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        self.admin.patch(path, {"status": status}).expect()

    def _mounted(self, pod: Manifest) -> dict[str, Path]:
        """The files of the ConfigMaps and Secrets that are mounted, by where they are in the pod."""
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        places = {}
        for mount in pod["spec"]["containers"][0]["volumeMounts"]:
            place = places[mount["mountPath"]] = self.directory / mount["mountPath"].lstrip("/")
            for key, content in self._content(volumes[mount["name"]]).items():
                place.mkdir(parents=True, exist_ok=True)
                (place / key).write_bytes(base64.b64decode(content))
        return places

    def _content(self, volume: Manifest) -> dict[str, str]:
        path = f"api/v1/namespaces/{self.namespace}"
        if "secret" in volume:
            found = self.admin.get(f"{path}/secrets/{volume['secret']['secretName']}").expect()
            return found.get("data") or {}
        if "configMap" in volume:
            return self.admin.get(f"{path}/configmaps/{volume['configMap']['name']}").expect().get("binaryData") or {}
        return {}
