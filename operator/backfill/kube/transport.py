"""One request to the API server: at a bounded rate, within a time, and repeated where that may
help.
"""

import json
import logging
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
from backfill.kube.errors import Unreachable, error_of
from backfill.kube.resources import Resource
from backfill.kube.throttle import Throttle

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

Verb = Literal["get", "list", "watch", "create", "patch", "update", "delete"]
"""What is asked for, as RBAC names it."""
OnRequest = Callable[[Verb, str, int, float], None]
"""Told of each answer: verb, plural with subresource, HTTP status (0 without an answer),
seconds.
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
_MOST_LINE_BYTES = 2**20
_SAME_TIME = timedelta(seconds=2)
"""An answer tells its time in whole seconds, and comes a moment later."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How all requests of a client are made."""

    user_agent: str = "backfill-operator"
    read_seconds: float = 30.0
    """Longest silence of the server within an answer, unless the request has its own limit."""
    retries: int = 4
    """Retries of a request that was not answered, or that may succeed later. Zero leaves them to
    the caller.
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
    """Longest silence of the server within the answer; None for that of the client's options."""

    @property
    def kind(self) -> str:
        """What a role has to name: the plural, and the subresource."""
        return (
            f"{self.resource.plural}/{self.subresource}"
            if self.subresource
            else self.resource.plural
        )

    @property
    def where(self) -> str:
        """The object for people, or the namespace where there are several of them."""
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
    """Threads share it."""

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
        """The time by the API server's clock, as its last answer told it; until then by that of
        this machine.
        """
        return datetime.now(UTC) - self._ahead

    def send(self, call: Call) -> bytes:
        """The body of the answer. A request whose answer was lost is sent again: it may have been
        done already.

        Raises:
            ClusterError: it was not done, or (Unreachable) it is not known to be done.
            ConflictError: it lost against another write.
        """
        return self._repeatedly(call, lambda answer: answer.data)

    def lines(self, call: Call) -> Iterator[bytes]:
        """The lines of an answer as they come, until it ends or breaks off.

        Raises:
            ClusterError: there is no answer.
        """
        answer = self._repeatedly(call, lambda answer: answer)
        rest = b""
        try:
            for chunk in answer.stream(decode_content=True):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
                if len(rest) > _MOST_LINE_BYTES:
                    yield rest
                    rest = b""
        except (urllib3.exceptions.HTTPError, OSError) as error:
            _LOG.debug("%s %s broke off: %s", call.verb, call.where, error)
        finally:
            answer.close()

    def close(self) -> None:
        """Gives connections back."""
        self._client.rest_client.close()

    def _repeatedly(self, call: Call, take: Callable[[BaseHTTPResponse], T]) -> T:
        waits = (_FIRST_WAIT_SECONDS * 2.0**number for number in range(self._options.retries))
        while True:
            try:
                return take(self._once(call))
            except (urllib3.exceptions.HTTPError, OSError) as error:  # the answer broke off
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
        """The answer, its body not read yet.

        Raises:
            Unreachable: it was not answered, or may succeed later.
            ClusterError: it was not done.
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
        with suppress(ValueError, TypeError):
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
            headers["Authorization"] = token  # asked for each time: tokens are rotated
        return self._client.rest_client.pool_manager.request(
            _METHODS[call.verb],
            f"{configuration.host}{call.path}",
            body=None if call.body is None else json.dumps(call.body),
            headers=headers,
            timeout=urllib3.Timeout(
                connect=_CONNECT_SECONDS,
                read=self._options.read_seconds if call.read_seconds is None else call.read_seconds,
            ),
            retries=False,  # the library's would wait on their own and be bound to no rate
            preload_content=False,
        )


def _unreachable(call: Call, error: Exception) -> Unreachable:
    return Unreachable(
        f"cannot {call.verb} {call.where}: the API server did not answer: {first_line(error)}"
    )


def _retry_after(answer: BaseHTTPResponse) -> float:
    try:
        return float(answer.headers.get("Retry-After", 0))
    except ValueError:
        return 0.0
