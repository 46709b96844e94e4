"""What the error of a library means: whether access is refused, and whether a server may answer
later.
"""

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

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
