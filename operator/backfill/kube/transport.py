"""Sends requests to the API server: limits their rate and time,
and retries them where that may help.
"""

import json
import logging
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Literal, TypeVar
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient, Configuration
from urllib3 import BaseHTTPResponse

from backfill.api.errors import first_line
from backfill.kube.request_errors import Unreachable, error_of
from backfill.kube.resources import Resource
from backfill.kube.throttle import Throttle

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

Verb = Literal["get", "list", "watch", "create", "patch", "update", "delete"]
"""Verb of a request, as in RBAC."""
OnRequest = Callable[[Verb, str, int, float], None]
"""Called for each answer with verb, plural with subresource,
HTTP status (0 without an answer) and seconds.
"""

_METHODS: dict[Verb, str] = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "patch": "PATCH",
    "update": "PUT",
    "delete": "DELETE",
}
_CONNECT_SECONDS = 5.0
_FIRST_WAIT_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 10.0
_CONNECTIONS = 32
_SAME_TIME = timedelta(seconds=2)
"""Clocks that differ by less count as equal: an answer has its time in whole seconds, and takes a
moment to arrive.
"""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options for all requests of a client."""

    user_agent: str = "backfill-operator"
    read_seconds: float = 30.0
    """Longest silence of the server during an answer,
    in seconds, unless the request has its own limit.
    """
    retries: int = 4
    """Number of retries of a request that was not answered, or that may succeed later. With zero,
    the caller retries.
    """


@dataclass(frozen=True, slots=True)
class Call:
    """A request to the API server."""

    verb: Verb
    resource: Resource
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    query: tuple[tuple[str, str], ...] = ()
    body: object = None
    content_type: str = "application/json"
    accept: str = "application/json"
    read_seconds: float | None = None
    """Longest silence of the server during the answer, in seconds; None for the client's limit."""

    @property
    def kind(self) -> str:
        """The plural, and the subresource if there is one, as in a role."""
        return (
            f"{self.resource.plural}/{self.subresource}"
            if self.subresource
            else self.resource.plural
        )

    @property
    def where(self) -> str:
        """The object as it is shown, or the namespace if the request is about several objects."""
        if not self.name:
            return f"{self.kind} in namespace {self.namespace}" if self.namespace else self.kind
        return (
            f"{self.kind} {self.namespace}/{self.name}"
            if self.namespace
            else f"{self.kind} {self.name}"
        )

    @property
    def path(self) -> str:
        """The path and query of the URL."""
        path = self.resource.path(self.namespace, self.name, self.subresource)
        return f"{path}?{urlencode(self.query)}" if self.query else path


class Transport:
    """Sends requests. May be used by several threads."""

    def __init__(
        self,
        configuration: Configuration,
        throttle: Throttle,
        on_request: OnRequest,
        options: RequestOptions,
        sleep: Callable[[float], None] = time.sleep,
    ):
        configuration.connection_pool_maxsize = _CONNECTIONS
        self._client = ApiClient(configuration)
        self._throttle = throttle
        self._on_request = on_request
        self._options = options
        self._sleep = sleep
        self._ahead = timedelta()

    @property
    def now(self) -> datetime:
        """The current time by the API server's clock, according to its last answer; before the
        first one, by the clock of this machine.
        """
        return datetime.now(UTC) - self._ahead

    def send(self, call: Call) -> bytes:
        """The body of the answer. If the answer is lost, the request is sent again, although it may
        have been carried out.

        Raises:
            ClusterError: it was not carried out, or (Unreachable) that is unknown.
            ConflictError: it lost against another write.
        """
        return self._repeatedly(call, lambda answer: answer.data)

    def lines(self, call: Call, part_bytes: float = math.inf) -> Iterator[bytes]:
        """The lines of an answer as they arrive, until it ends or the connection breaks. A line
        that is longer than ``part_bytes`` comes in parts.

        Raises:
            ClusterError: there is no answer.
        """
        answer = self._repeatedly(call, lambda answer: answer)
        rest = b""
        try:
            for chunk in answer.stream(decode_content=True):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
                if len(rest) > part_bytes:
                    yield rest
                    rest = b""
        except (urllib3.exceptions.HTTPError, OSError) as error:
            _LOG.debug("%s %s broke off: %s", call.verb, call.where, error)
        finally:
            answer.close()

    def close(self) -> None:
        """Closes all connections."""
        self._client.rest_client.close()

    def _repeatedly(self, call: Call, take: Callable[[BaseHTTPResponse], T]) -> T:
        waits = (_FIRST_WAIT_SECONDS * 2.0**number for number in range(self._options.retries))
        while True:
            try:
                return take(self._once(call))
            except (urllib3.exceptions.HTTPError, OSError) as error:  # the connection broke
                failure = _unreachable(call, error)
            except Unreachable as error:
                failure = error
            wait = next(waits, None)
            if wait is None:
                raise failure
            self._sleep(
                max(
                    wait * random.uniform(0.5, 1.0),
                    min(failure.retry_after_seconds, _LONGEST_WAIT_SECONDS),
                )
            )

    def _once(self, call: Call) -> BaseHTTPResponse:
        """The answer; its body has not been read.

        Raises:
            Unreachable: it was not answered, or may succeed later.
            ClusterError: it was not carried out.
            ConflictError: it lost against another write.
        """
        self._throttle.wait()
        started, status = time.monotonic(), 0
        try:
            answer = self._request(call)
            status = answer.status
            self._note_time(answer)
            if status < HTTPStatus.BAD_REQUEST:
                return answer
            error = error_of(status, answer.data, call.verb, call.resource, call.where)
        except (urllib3.exceptions.HTTPError, OSError) as failure:
            raise _unreachable(call, failure) from failure
        finally:
            self._on_request(call.verb, call.kind, status, time.monotonic() - started)
        if isinstance(error, Unreachable):
            error.retry_after_seconds = _retry_after(answer)
        raise error

    def _note_time(self, answer: BaseHTTPResponse) -> None:
        with suppress(KeyError, ValueError, TypeError):
            ahead = datetime.now(UTC) - parsedate_to_datetime(answer.headers["Date"])
            self._ahead = ahead if abs(ahead) > _SAME_TIME else timedelta()

    def _request(self, call: Call) -> BaseHTTPResponse:
        configuration = self._client.configuration
        headers = {
            "Accept": call.accept,
            "Content-Type": call.content_type,
            "User-Agent": self._options.user_agent,
        }
        if token := configuration.get_api_key_with_prefix("BearerToken", alias="authorization"):
            headers["Authorization"] = token  # read for each request, because tokens are rotated
        return self._client.rest_client.pool_manager.request(
            _METHODS[call.verb],
            f"{configuration.host}{call.path}",
            body=None if call.body is None else json.dumps(call.body),
            headers=headers,
            timeout=urllib3.Timeout(
                connect=_CONNECT_SECONDS,
                read=self._options.read_seconds if call.read_seconds is None else call.read_seconds,
            ),
            retries=False,  # those of the library would ignore the rate limit
            preload_content=False,
        )


def _unreachable(call: Call, error: Exception) -> Unreachable:
    return Unreachable(
        f"cannot {call.verb} {call.where}: the API server did not answer: {first_line(error)}"
    )


def _retry_after(answer: BaseHTTPResponse) -> float:
    """The seconds that the server asks to wait; zero if that is not a number of seconds."""
    try:
        seconds = float(answer.headers.get("Retry-After", 0))
    except ValueError:
        return 0.0
    return seconds if 0.0 <= seconds < math.inf else 0.0
