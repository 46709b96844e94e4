"""A catalog that answers what its owner likes: a real REST server, of which every answer can be
chosen.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyiceberg.table import Table


@dataclass
class HostileCatalog:
    """One table ``raw.clicks``."""

    metadata: dict[str, Any]
    metadata_location: str
    defaults: dict[str, Any] = field(default_factory=dict)
    """What its server puts below the client's properties."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """What it puts over them."""
    config: dict[str, Any] = field(default_factory=dict)
    """What it says of the table."""
    credentials: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """The requests that came."""
    uri: str = ""

    @property
    def properties(self) -> dict[str, str]:
        """All that a Secret has to say to get there."""
        return {"type": "rest", "uri": self.uri}

    def answer(self, path: str) -> dict[str, Any]:
        """To a request."""
        self.asked.append(path)
        if path.startswith("/v1/config"):
            return {"defaults": self.defaults, "overrides": self.overrides}
        return {
            "metadata-location": self.metadata_location,
            "metadata": self.metadata,
            "config": self.config,
            "storage-credentials": self.credentials,
        }


@contextmanager
def hostile_catalog(table: Table, **answers: Any) -> Iterator[HostileCatalog]:
    """A server that shows a table, and more."""
    metadata = json.loads(table.metadata.model_dump_json())
    catalog = HostileCatalog(metadata, table.metadata_location, **answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(catalog.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        catalog.uri = f"http://127.0.0.1:{server.server_port}"
        yield catalog
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
