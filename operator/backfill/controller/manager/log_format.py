"""The operator's log: one line per record, and every line of a reconcile names its Backfill."""

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Literal, TextIO

from backfill.api.base import printable
from backfill.api.redaction import redact

LogFormat = Literal["text", "json"]

_SUBJECT: ContextVar[Mapping[str, str | int]] = ContextVar("subject", default=MappingProxyType({}))
_BEARER = re.compile(r"(?i)(bearer )[\w.~+/=-]{8,}")
_MOST_CHARACTERS = 64 * 1024
"""Most characters of a message or traceback. Some quote an object that a tenant has made, each time
that it changes.
"""
_QUIET = {
    "kopf": logging.WARNING,  # at INFO it reports every object that it sees
    # missing kinds are reported by what lists them
    "kopf._core.reactor.observation": logging.ERROR,
    "aiohttp.access": logging.WARNING,  # probes come every few seconds
    "urllib3": logging.ERROR,  # the client retries and logs by itself
}


@contextmanager
def about(namespace: str, name: str, uid: str = "", attempt: int | None = None) -> Iterator[None]:
    """Within this context, every record of this thread names the Backfill and attempt."""
    subject: dict[str, str | int] = {"namespace": namespace, "name": name}
    subject |= {"uid": uid} if uid else {}
    subject |= {} if attempt is None else {"attempt": attempt}
    token = _SUBJECT.set(subject)
    try:
        yield
    finally:
        _SUBJECT.reset(token)


def configure(form: LogFormat, level: str, stream: TextIO = sys.stderr) -> None:
    """Sends all logging of this process to a stream.

    ``level`` is ``debug``, ``info``, ``warning`` or ``error``.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(_add_subject)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(max(quiet, root.level))


class JsonFormatter(logging.Formatter):
    """Writes time, level, logger, message, the Backfill as ``namespace``, ``name``, ``uid`` and
    ``attempt``, and the traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _hidden(record.getMessage()),
            **_subject(record),
        }
        if record.exc_info:
            line["error"] = _hidden(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """Writes ``time LEVEL namespace/name#attempt: message``."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, followed by the traceback."""
        subject = _subject(record)
        where = f"{subject['namespace']}/{subject['name']}" if "name" in subject else record.name
        attempt = f"#{subject['attempt']}" if "attempt" in subject else ""
        text = f"{_time(record)} {record.levelname} {where}{attempt}: {record.getMessage()}"
        whole = _hidden(
            f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text
        )
        # only records of the operator begin at the start of a line
        return whole.replace("\n", "\n    ")


def _add_subject(record: logging.LogRecord) -> bool:
    """Adds the Backfill in the thread that logs; a formatter may run in another."""
    record.subject = _SUBJECT.get()
    return True


def _subject(record: logging.LogRecord) -> Mapping[str, str | int]:
    subject: Mapping[str, str | int] = getattr(record, "subject", {})
    if subject:
        return subject
    backfill = getattr(record, "backfill", "")  # set by jobs, which run in their own threads
    namespace, _, name = str(backfill).partition("/")
    if name:
        return {"namespace": namespace, "name": name}
    reference = getattr(record, "k8s_ref", None)  # set by Kopf
    if isinstance(reference, Mapping):
        return {
            key: str(reference[key])
            for key in ("kind", "namespace", "name", "uid")
            if reference.get(key)
        }
    return {}


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _hidden(text: str) -> str:
    shown = printable(_BEARER.sub(r"\1***", redact(text[: 2 * _MOST_CHARACTERS])))
    return f"{shown[:_MOST_CHARACTERS]}…" if len(shown) > _MOST_CHARACTERS else shown
