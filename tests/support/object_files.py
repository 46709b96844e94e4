"""Objects of an S3 store, served from a directory by a real HTTP server that may be unavailable."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

BUSY = b"<Error><Code>ServiceUnavailable</Code><Message>try later</Message></Error>"


@dataclass
class ObjectFiles:
    """A store from which objects are only read."""

    directory: Path
    """Below it, the object ``s3://bucket/key`` is the file ``bucket/key``."""
    unavailable: list[str] = field(default_factory=list)
    """Ends of keys; each answers 503 to as many requests as it is listed."""
    answered: list[int] = field(default_factory=list)
    """The status of each answer."""
    endpoint: str = ""

    def answer(self, path: str, wanted: str | None) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers; ``wanted`` is a range of bytes."""
        busy = next((end for end in self.unavailable if path.endswith(end)), None)
        if busy is not None:
            self.unavailable.remove(busy)
            return 503, BUSY, {}
        file = self.directory / path.lstrip("/")
        if not file.is_file():
            return 404, b"", {}
        content = file.read_bytes()
        headers = {"Last-Modified": formatdate(file.stat().st_mtime, usegmt=True), "ETag": '"1"'}
        if wanted is None:
            return 200, content, headers
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        until = min(int(last) + 1, len(content))
        headers["Content-Range"] = f"bytes {first}-{until - 1}/{len(content)}"
        return 206, content[int(first) : until], headers


@contextmanager
def object_files(directory: Path) -> Iterator[ObjectFiles]:
    """A server of the objects in a directory."""
    store = ObjectFiles(directory)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body, headers = store.answer(self.path, self.headers.get("Range"))
            store.answered.append(status)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - as the base class names it

        def log_message(self, *_arguments: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store.endpoint = f"http://127.0.0.1:{server.server_port}"
        yield store
        server.shutdown()


class _LocalObjects(PyArrowFileIO):
    """Writes objects into the directory that is served."""

    def __init__(self, directory: Path):
        super().__init__()
        self._directory = directory

    def new_output(self, location: str) -> PyArrowFile:
        path = self._directory / location.removeprefix("s3://")
        path.parent.mkdir(parents=True, exist_ok=True)
        return PyArrowFile(location=location, path=str(path), fs=LocalFileSystem())

    new_input = new_output


def create_objects(
    directory: Path, patch: pytest.MonkeyPatch, name: str, rows: pa.Table, properties: Any
) -> None:
    """Creates a table in a bucket ``lake``, without the store."""
    with patch.context() as writing:
        for module in ("pyiceberg.catalog", "pyiceberg.catalog.sql"):
            writing.setattr(f"{module}.load_file_io", lambda *_, **__: _LocalObjects(directory))
        catalog = SqlCatalog("lake", **{**properties, "warehouse": "s3://lake"})
        catalog.create_table(name, schema=rows.schema).append(rows)
