"""The connection with which Kopf watches: it reads whatever the API server stores.

Kopf reads JSON with Python's reader, which cannot read objects nested as deeply as the API server
takes, and reads whatever there is into memory. One such object would hide all others of its kind.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import kopf

from backfill.api.json_text import read_within_bounds, within_bounds


@dataclass(frozen=True, kw_only=True)
class WatchingSession(kopf.AiohttpSession):
    """Equal if the credentials are, so that Kopf does not try refused ones again."""

    credentials: kopf.ConnectionInfo
    aiohttp_session: aiohttp.ClientSession = field(compare=False)


def watching_session(credentials: kopf.ConnectionInfo) -> WatchingSession:
    """The connection for Kopf; to be called in its loop."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=credentials.as_ssl_context()),
        headers=credentials.as_http_headers(),
        response_class=_Answer,
    )
    return WatchingSession(
        server=credentials.server, credentials=credentials, aiohttp_session=session
    )


class _Answer(aiohttp.ClientResponse):
    async def start(self, connection: Any) -> "_Answer":
        await super().start(connection)
        self.content = _Lines(self.content)  # type: ignore[assignment]
        return self

    async def json(self, **_: Any) -> Any:
        return read_within_bounds(await self.read())


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
