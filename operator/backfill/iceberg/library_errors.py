"""What may be said about the error of a library.

Libraries quote answers of servers. If this process works for others, the reader of the message
might not be allowed to use that server. Therefore only the class of the error, its HTTP status and
known phrases are repeated.
"""

import re
import traceback
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from backfill.api.errors import BackfillError, first_line
from backfill.iceberg.allowed_local_files import BadAnswer, OutOfReach, limited

_PHRASES: Final = (
    *(
        "Connection refused",
        "Connection reset by peer",
        "No route to host",
        "Network is unreachable",
    ),
    *("Name or service not known", "database is locked", "unable to open database file"),
    *(
        "Temporary failure in name resolution",
        "could not translate host name",
        "Could not resolve host",
        "timed out",
        "Timeout",
    ),
    *(
        "certificate verify failed",
        "WRONG_VERSION_NUMBER",
        "wrong version number",
        "Max retries exceeded",
        "Connection aborted",
    ),
    *(
        "password authentication failed",
        "does not support SSL",
        "no pg_hba.conf entry",
        "Permission denied",
        "Access denied",
    ),
    *(
        "No such file or directory",
        "Path does not exist",
        "does not exist",
        "is not installed",
        "not installed",
    ),
    *("Could not open Parquet input source", "Invalid Parquet file", "magic bytes not found"),
)
"""Phrases that are repeated if a message contains them, since they reveal nothing else."""
_STORE_ERROR: Final = re.compile(r"AWS Error ([A-Z_]{1,40})(?: \(HTTP status (\d{3})\))?")
"""PyArrow's form of an S3 error.
The name is one of the library's, whatever the server has answered.
"""
_STORE_LATER: Final = frozenset(
    {"REQUEST_TIMEOUT", "SERVICE_UNAVAILABLE", "SLOW_DOWN", "THROTTLING"}
)
_BROKEN_CONNECTION: Final = re.compile(r"curlCode: (?:28|52|55|56)\b")
"""Codes of libcurl for a connection that a server has closed or not used in time."""
_REFUSED: Final = re.compile(
    r"\b(ACCESS|PERMISSION)_DENIED\b|(?i:(access|permission) denied|password authentication failed)"
)
"""How stores, databases and file systems say that access is refused."""
_UNAVAILABLE: Final = frozenset(
    {"CommitStateUnknownException", "ConnectionError", "OperationalError", "Timeout"}
)
_LATER: Final = frozenset({"ServiceUnavailableError", "TooManyRequestsError"})
"""Errors of PyIceberg, and of its clients for the network and for databases."""
_LATER_STATUS: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_NOT_AN_ANSWER: Final = frozenset({"ValidationError", "JSONDecodeError", "UnicodeDecodeError"})


def reason(error: Exception) -> str:
    """Why something has failed, in one line."""
    if not limited() or isinstance(error, (BackfillError, OutOfReach, BadAnswer)):
        return first_line(error)
    names = [type(error).__name__, *_details(error)]
    return f"{names[0]} ({', '.join(dict.fromkeys(names[1:]))})" if names[1:] else names[0]


def is_refusal(error: Exception) -> bool:
    """Whether access is refused, until somebody grants it."""
    return any(
        isinstance(each, PermissionError)
        or _status(each) in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        or _REFUSED.search(str(each)) is not None
        for each in _chain(error)
    )


def is_unavailable(error: Exception) -> bool:
    """Whether a server could not be reached, or says that it cannot answer now."""
    return says_later(error) or any(
        isinstance(each, ConnectionError | TimeoutError) or type(each).__name__ in _UNAVAILABLE
        for each in _chain(error)
    )


def says_later(error: Exception) -> bool:
    """Whether a server has answered that it cannot do it now, or has broken the connection."""
    return any(
        isinstance(each, ConnectionResetError)
        or type(each).__name__ in _LATER
        or _status(each) in _LATER_STATUS
        or _store_says_later(str(each))
        for each in _chain(error)
    )


def _store_says_later(message: str) -> bool:
    found = _STORE_ERROR.search(message)
    if found is None:
        return False
    return (
        found[1] in _STORE_LATER
        or (found[2] is not None and int(found[2]) in _LATER_STATUS)
        or _BROKEN_CONNECTION.search(message) is not None
    )


def trace(error: BaseException) -> str:
    """A traceback for the log, with only those messages that may be repeated."""
    if not limited():
        return "".join(traceback.format_exception(error))
    lines = []
    for each in reversed(list(_chain(error))):
        lines += traceback.format_tb(each.__traceback__)
        lines.append(f"{reason(each) if isinstance(each, Exception) else type(each).__name__}\n")
    return "".join(lines)


def _details(error: Exception) -> Iterator[str]:
    for each in _chain(error):
        if isinstance(each, (OutOfReach, BadAnswer)):
            yield first_line(each)
        if type(each).__name__ in _NOT_AN_ANSWER:
            yield "the response was not the expected one"
        if type(each).__name__ == "TooManyRedirects":
            yield "the server redirects: use its final address"
        if status := _status(each):
            yield f"HTTP status {status}"
        text = str(each)
        if found := _STORE_ERROR.search(text):
            yield f"AWS error {found[1]}"
            if found[2]:
                yield f"HTTP status {found[2]}"
        yield from (phrase for phrase in _PHRASES if phrase in text)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def _status(error: BaseException) -> int | None:
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        status = (response.get("ResponseMetadata") or {}).get("HTTPStatusCode")
    else:
        status = getattr(response, "status_code", None)
    return status if isinstance(status, int) else None
