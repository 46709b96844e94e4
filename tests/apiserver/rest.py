"""Plain requests to the API server: what went in, what came out, and the warnings that came with
it.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kubernetes.config import new_client_from_config

from backfill.api.json_text import read_within_bounds

Manifest = dict[str, Any]
BACKFILLS = "apis/backfill.dev/v1alpha1/namespaces/{}/backfills"
SPLIT_ASSIGNMENTS = "apis/backfill.dev/v1alpha1/namespaces/{}/splitassignments"
DECISIONS = "apis/backfill.dev/v1alpha1/namespaces/{}/backfilldecisions"
JOB_REPORTS = "apis/backfill.dev/v1alpha1/namespaces/{}/jobreports"
SPARK_APPLICATIONS = "apis/sparkoperator.k8s.io/v1beta2/namespaces/{}/sparkapplications"
DEFINITIONS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATCHES = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
}


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    body: Manifest
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.status < 300

    @property
    def message(self) -> str:
        """Why a request was refused."""
        return str(self.body.get("message", ""))

    def expect(self) -> Manifest:
        """The object; fails with the server's words where there is none."""
        assert self.ok, f"{self.status}: {self.message}"
        return self.body


class Rest:
    """The API as the user of a kubeconfig sees it. Paths are as in ``kubectl get --raw``, without
    the first slash.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._client = new_client_from_config(str(kubeconfig))
        self._base = self._client.configuration.host.rstrip("/")

    def get(self, path: str, accept: str = "application/json", **query: str) -> Answer:
        return self._request("GET", path, query, headers={"Accept": accept})

    def create(self, path: str, manifest: Manifest | str, **query: str) -> Answer:
        """``manifest`` may be JSON already."""
        return self._request("POST", path, query, manifest)

    def replace(self, path: str, manifest: Manifest, **query: str) -> Answer:
        return self._request("PUT", path, query, manifest)

    def patch(
        self, path: str, change: Manifest | list[Manifest], kind: str = "merge", **query: str
    ) -> Answer:
        return self._request("PATCH", path, query, change, headers={"Content-Type": PATCHES[kind]})

    def apply(self, path: str, manifest: Manifest, manager: str = "tests") -> Answer:
        """Server-side apply, taking fields over from whoever holds them."""
        return self.patch(path, manifest, "apply", fieldManager=manager, force="true")

    def delete(self, path: str, **query: str) -> Answer:
        return self._request("DELETE", path, query)

    def close(self) -> None:
        self._client.close()

    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: object = None,
        *,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        sent = {"Content-Type": "application/json"} | (headers or {})
        if token := self._client.configuration.get_api_key_with_prefix("BearerToken"):
            sent["Authorization"] = token
        url = f"{self._base}/{path}" + (f"?{urlencode(query)}" if query else "")
        text = body if isinstance(body, str | None) else json.dumps(body)
        response = self._client.rest_client.pool_manager.request(
            method, url, body=text, headers=sent, retries=False
        )
        answer = response.data
        decoded = (
            read_within_bounds(answer) if answer.startswith(b"{") else {"message": answer.decode()}
        )
        return Answer(response.status, decoded, response.headers.getlist("Warning"))
