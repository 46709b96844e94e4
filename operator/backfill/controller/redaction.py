"""What stands in a Secret stays out of messages, also where a client library repeats what it was given."""

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TextIO
from urllib.parse import urlsplit

from backfill.api.errors import BackfillError, BadInput

_PUBLIC = ("__TYPE", "__URI", "__WAREHOUSE", "__S3__ENDPOINT", "__S3__REGION")
"""Properties that say where a catalog is; a message without them would help nobody."""
_SHORTEST = 4
"""Characters; anything shorter stands in many words."""
_LOGIN = re.compile(r"(://)[^/\s@]+@")
_HIDDEN = "***"


def redact(text: str, variables: Mapping[str, str]) -> str:
    """The text without the values of catalog variables that say more than where the catalog is, and without logins."""
    for secret in sorted(_secrets(variables), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _LOGIN.sub(rf"\1{_HIDDEN}@", text)


def redacted(error: BackfillError, variables: Mapping[str, str]) -> BackfillError:
    """The same error without secrets."""
    if isinstance(error, BadInput):
        texts = ((problem, redact(problem.message, variables), redact(problem.fix, variables)) for problem in error.problems)
        return type(error)([replace(problem, message=message, fix=fix) for problem, message, fix in texts])
    return type(error)(redact(str(error), variables))


class RedactedText(io.TextIOBase):
    """Passes on what is written to it, redacted: also what libraries log, and what stands in a traceback."""

    def __init__(self, stream: TextIO, variables: Mapping[str, str]):
        """``stream`` takes what is left."""
        self._stream = stream
        self._variables = variables

    def write(self, text: str) -> int:
        """Each text by itself: a secret may have several lines."""
        self._stream.write(redact(text, self._variables))
        return len(text)

    def flush(self) -> None:
        """Flushes the stream."""
        self._stream.flush()


def _secrets(variables: Mapping[str, str]) -> Iterator[str]:
    for name, value in variables.items():
        password = _password(value)
        if password and len(password) >= _SHORTEST:
            yield password
        if len(value) >= _SHORTEST and not name.endswith(_PUBLIC):
            yield value


def _password(value: str) -> str | None:
    try:
        return urlsplit(value).password
    except ValueError:
        return None
