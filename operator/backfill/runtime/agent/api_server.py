"""The API server as a driver talks to it: a few requests with the pod's own token.

No Kubernetes library: the runtime stands in the user's image, beside the user's packages, and needs
three requests only.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

from backfill.api.errors import BackfillError, first_line

Manifest = dict[str, Any]

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ANSWER = urllib3.Timeout(connect=5.0, read=15.0)
_WATCH_SECONDS = 240
_EVENT = urllib3.Timeout(connect=5.0, read=100.0)
"""A watch with bookmarks says something about once a minute; one that is silent for longer is
dead.
"""
_BROKEN = (urllib3.exceptions.HTTPError, OSError, ValueError, LookupError, TypeError)
"""What reading an answer raises that is cut off, or is not the API server's."""


class ApiError(Exception):
    """A request that was not answered, or was refused. Unanswered, it may have been carried out,
    now or later.
    """

    def __init__(
        self,
        status: int,
        message: str,
        details: Manifest | None = None,
        retry_after_seconds: float | None = None,
    ):
        super().__init__(f"{status or 'no answer'}: {message}")
        self.status = status
        """The status of HTTP; zero where there was no answer."""
        self.retry_after_seconds = retry_after_seconds
        """How long the server asks to be left alone."""
        self._details = details or {}

    def concerns(self, name: str) -> bool:
        """Whether the server says it of this object, rather than of the request."""
        return self._details.get("name") == name


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a watch."""

    type: str
    """``ADDED``, ``MODIFIED``, ``DELETED``, or ``BOOKMARK``, which has nothing but a version."""
    manifest: Manifest
    version: str
    """The resourceVersion to go on from."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the server is, and the files that say who we are and who it must be. Both files may be
    replaced at any time.
    """

    url: str
    token_file: Path
    ca_file: Path


def pod_connection() -> Connection:
    """The connection that every pod with a service account has.

    Raises:
        BackfillError: this is no such pod.
    """
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST"),
        os.environ.get("KUBERNETES_SERVICE_PORT"),
    )
    connection = Connection(
        f"https://{_bracketed(host or '')}:{port}",
        _SERVICE_ACCOUNT / "token",
        _SERVICE_ACCOUNT / "ca.crt",
    )
    if not (host and port and connection.token_file.exists()):
        raise BackfillError(
            "this pod has no service account token; the driver needs one:"
            " automountServiceAccountToken must be true"
        )
    return connection


class ApiServer:
    """Requests of one identity. May be used by several threads; none is repeated here."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._pool: urllib3.PoolManager | None = None

    def get(self, path: str) -> Manifest:
        """An object as it is now.

        Raises:
            ApiError: it could not be read.
        """
        return self._answer("GET", path)

    def patch(self, path: str, operations: list[Manifest], manager: str) -> Manifest:
        """The object after a JSON patch, which is done as a whole or not at all.

        Raises:
            ApiError: it was refused (422: a ``test`` did not hold, or the result is not valid), or
                there was no answer.
        """
        body = json.dumps(operations).encode()
        headers = {"Content-Type": "application/json-patch+json"}
        return self._answer(
            "PATCH", f"{path}?{urlencode({'fieldManager': manager})}", body, headers
        )

    def watch(self, collection: str, name: str, version: str) -> Iterator[Event]:
        """The events of one object since a resourceVersion, until the server ends the watch, which
        it does now and then.

        Raises:
            ApiError: the watch could not begin or broke off; 410 where that version is forgotten.
        """
        query = {
            "watch": "1",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        response = self._request("GET", f"{collection}?{urlencode(query)}", timeout=_EVENT)
        try:
            for line in response:
                yield _event(json.loads(line))
        except _BROKEN as error:
            raise ApiError(0, first_line(error)) from error
        finally:
            response.close()

    def _answer(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Manifest:
        response = self._request(method, path, body, headers)
        try:
            manifest: Manifest = json.loads(response.read())
            # something in between may answer for the server
            manifest["metadata"]["resourceVersion"]
            return manifest
        except _BROKEN as error:
            raise ApiError(0, first_line(error)) from error
        finally:
            response.release_conn()

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout: urllib3.Timeout = _ANSWER,
    ) -> urllib3.BaseHTTPResponse:
        try:
            # Read each time: the kubelet replaces it well before the old one ends.
            token = self._connection.token_file.read_text().strip()
            sent = {
                "Authorization": f"Bearer {token}",
                "User-Agent": "backfill-driver",
                **(headers or {}),
            }
            response = self._open_pool().request(
                method,
                self._connection.url + path,
                body=body,
                headers=sent,
                timeout=timeout,
                preload_content=False,
            )
            if response.status >= 300:
                content = response.read()
                response.release_conn()
                raise _refused(
                    response.status, _decoded(content), response.headers.get("Retry-After")
                )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            # the next one verifies the server by the certificates that the file holds then
            self._pool = None
            raise ApiError(0, first_line(error)) from error
        return response

    def _open_pool(self) -> urllib3.PoolManager:
        pool = self._pool
        if pool is None:
            ca = (
                str(self._connection.ca_file) if self._connection.url.startswith("https:") else None
            )
            pool = self._pool = urllib3.PoolManager(ca_certs=ca, retries=False, maxsize=2)
        return pool


def _event(event: Manifest) -> Event:
    manifest = event["object"]
    if event["type"] == "ERROR":
        raise _refused(manifest["code"], manifest)
    return Event(event["type"], manifest, manifest["metadata"]["resourceVersion"])


def _refused(status: int, answer: Manifest, retry_after: str | None = None) -> ApiError:
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
    return ApiError(status, str(answer.get("message", "refused")), answer.get("details"), seconds)


def _decoded(content: bytes) -> Manifest:
    """The refusal as the API server says it; one of something in between is text."""
    try:
        return dict(json.loads(content))
    except (ValueError, TypeError):
        return {"message": content[:200].decode(errors="replace")}


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
