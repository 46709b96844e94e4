"""How the operator reaches the API server: with the client for requests, and with Kopf for watches.

Kopf reads JSON with Python's reader, which cannot read objects nested as deeply as the API server
takes, and reads whatever there is into memory. One such object would hide all others of its kind,
so Kopf gets a connection that reads within bounds.
"""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import aiohttp
import kopf
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

from backfill.api.json_text import read_within_bounds, within_bounds
from backfill.kube.client import Cluster
from backfill.kube.service_account import pod_configuration


@dataclass(frozen=True, slots=True)
class Login:
    """Source of credentials.

    They are read each time they are needed, because they change while the operator runs.
    """

    kubeconfig: Path | None = None
    context: str | None = None

    @property
    def is_pod(self) -> bool:
        """Whether to use the service account of this pod."""
        return (
            self.kubeconfig is None
            and self.context is None
            and "KUBERNETES_SERVICE_HOST" in os.environ
        )

    def cluster(self, **options: Any) -> Cluster:
        """A new client.

        Raises:
            BackfillError: there are no credentials.
        """
        return (
            Cluster.in_cluster(**options)
            if self.is_pod
            else Cluster.from_kubeconfig(self.kubeconfig, self.context, **options)
        )

    def connection(self) -> kopf.ConnectionInfo:
        """The credentials for Kopf."""
        read = pod_configuration() if self.is_pod else Configuration()
        if not self.is_pod:
            load_kube_config(
                None if self.kubeconfig is None else str(self.kubeconfig), self.context, read
            )  # type: ignore[no-untyped-call]
        scheme, _, token = (read.get_api_key_with_prefix("BearerToken") or "").rpartition(" ")
        return kopf.ConnectionInfo(
            server=read.host,
            ca_path=read.ssl_ca_cert,
            insecure=not read.verify_ssl,
            username=read.username or None,
            password=read.password or None,
            scheme=scheme or None,
            token=token or None,
            certificate_path=read.cert_file,
            private_key_path=read.key_file,
        )


def bounded_session(credentials: kopf.ConnectionInfo) -> kopf.AiohttpSession:
    """The connection for Kopf; to be called in its loop."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=credentials.as_ssl_context()),
        headers=credentials.as_http_headers(),
        response_class=_Answer,
    )
    return kopf.AiohttpSession(server=credentials.server, aiohttp_session=session)


class _Answer(aiohttp.ClientResponse):
    async def start(self, connection: Any) -> "_Answer":
        await super().start(connection)
        self.content = _Lines(self.content)  # type: ignore[assignment]
        return self

    async def json(self, **_: Any) -> Any:
        """Raises the error that Kopf knows: an API server that has too much to do, or a load
        balancer before it, answers in plain text.
        """
        try:
            return read_within_bounds(await self.read())
        except ValueError as error:
            raise JSONDecodeError(str(error), "", 0) from error


class _Lines:
    """The body of an answer; of a watch, which is read in pieces, it gives whole lines."""

    def __init__(self, content: aiohttp.StreamReader):
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        rest: list[bytes] = []
        async for chunk in self._content.iter_chunked(size):
            *ended, begun = chunk.split(b"\n")
            for end in ended:
                yield within_bounds(b"".join((*rest, end))) + b"\n"
                rest = []
            rest.append(begun)
        yield b"".join(rest)
