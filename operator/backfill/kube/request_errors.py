"""Errors of requests to the API server.

BackfillError
└── ClusterError             a request failed; ``status`` is that of the answer, 0 without one
    ├── AlreadyExists        an object of this name exists
    ├── Expired              a list or watch cannot continue from there (410): list again
    ├── Forbidden            a permission is missing
    │   └── Denied           refused by admission: quota, LimitRange, Pod Security, policy, webhook
    ├── KindMissing          the API server does not know the kind: its definition is not installed
    ├── NamespaceEnding      nothing can be created in a namespace that is being deleted
    ├── NotFound             the object to be changed does not exist
    ├── Refused              the request is not valid, or does not fit the object
    │   └── Invalid          the object would not be valid
    ├── Unauthorized         the API server does not accept the credentials
    └── Unreachable          no answer, or one that asks to try later
        └── Faltering        the API server answers, but something that it calls has failed

A write that lost against another one (409) is :class:`backfill.api.errors.ConflictError`.
"""

# ruff: noqa: N818 - as in the project's other errors: the names say what is wrong

import re
from http import HTTPStatus
from http.client import responses

from backfill.api.errors import BackfillError, ConflictError, NowhereToRun
from backfill.api.json_text import read_json_text
from backfill.api.manifests.problems import FORMS
from backfill.kube.resources import Resource

QUOTA = "exceeded quota"
"""Part of the message for an object that would exceed a ResourceQuota."""
_MOST_TEXT = 500
_UNDECLARED = "field not declared in schema"
_BY_ADMISSION = re.compile(r"denied (the )?request")
"""Webhooks and policies choose the HTTP status of their answer, so it is recognised by its message.
"""
_PATTERN = re.compile(r"\S+ in body should match '(.*?)'(?=$|, \S+: |\])", re.MULTILINE)
"""A value of another form than the definition's pattern, in the words of the API server."""
_BY_RBAC = re.compile(r'cannot \w+ (resource|path) "')


class ClusterError(BackfillError):
    """A request failed. ``status`` is the HTTP status of the answer, 0 without one."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status


class AlreadyExists(ClusterError):
    """An object of this name exists."""


class Expired(ClusterError):
    """A list or watch cannot continue from this point."""


class Forbidden(ClusterError):
    """A permission is missing."""


class Denied(Forbidden):
    """Refused by admission: a quota, a LimitRange, Pod Security, a policy or a webhook. The same
    request may succeed later.
    """


class KindMissing(ClusterError):
    """The API server does not know this kind of object."""


class NamespaceEnding(ClusterError, NowhereToRun):
    """The namespace is being deleted."""


class NotFound(ClusterError):
    """The object to be changed does not exist."""


class Refused(ClusterError):
    """The request is not valid, or does not fit the object."""


class Invalid(Refused):
    """The object would not be valid by its schema or rules."""


class Unauthorized(ClusterError):
    """The API server does not accept the credentials."""


class Unreachable(ClusterError):
    """There was no answer, or one that asks to try later."""

    retry_after_seconds: float = 0.0
    """How long the server asks to wait before the next attempt."""


class Faltering(Unreachable):
    """The API server answers, but something that it calls, such as an admission webhook, has
    failed. It may recover, or need a person.
    """


def error_of(
    status: int, body: bytes, verb: str, resource: Resource, where: str
) -> ClusterError | ConflictError:
    """The error for an answer of the API server.

    Args:
        status: the HTTP status, 400 or more.
        body: a ``Status`` in JSON, or text from something between this client and the API server.
        verb: verb of the request, as in RBAC.
        resource: kind of the object.
        where: the object as it is shown, such as ``backfills/status streaming/rmi``.
    """
    parsed = _read(body)
    text = (
        f"cannot {verb} {where}: {parsed.message or responses.get(status, f'HTTP status {status}')}"
    )
    match status:
        case HTTPStatus.CONFLICT if parsed.reason == "AlreadyExists":
            return AlreadyExists(text, status)
        case HTTPStatus.CONFLICT:
            return ConflictError(text)
        case HTTPStatus.NOT_FOUND if parsed.reason == "NotFound" and parsed.kind:
            return NotFound(text, status)
        case HTTPStatus.NOT_FOUND:
            return KindMissing(
                f"the API server serves no {resource.plural} of {resource.root[1:]}:"
                " install its definition",
                status,
            )
        case HTTPStatus.GONE:
            return Expired(text, status)
        case HTTPStatus.UNAUTHORIZED:
            return Unauthorized(
                f"{text}; check the credentials of the kubeconfig or service account", status
            )
        case HTTPStatus.FORBIDDEN if "NamespaceTerminating" in parsed.causes:
            return NamespaceEnding(text, status)
        case _ if status == HTTPStatus.FORBIDDEN or _BY_ADMISSION.search(parsed.message):
            return _forbidden(text, parsed.message, verb, resource, where)
        case _ if _UNDECLARED in parsed.message:  # its status is 500
            return Refused(
                f"{text}; the cluster's definitions are older than this program:"
                " apply those of its version",
                status,
            )
        case HTTPStatus.INTERNAL_SERVER_ERROR:
            return Faltering(text, status)
        case _ if (
            status > HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS
        ):
            return Unreachable(text, status)
        case _:
            # A patch whose test fails has this status as well, but names no kind.
            invalid = status == HTTPStatus.UNPROCESSABLE_ENTITY and parsed.kind
            return Invalid(text, status) if invalid else Refused(text, status)


class _Answer:
    """Content of an error answer."""

    def __init__(
        self, message: str, reason: str = "", kind: str = "", causes: tuple[str, ...] = ()
    ):
        self.message = message
        self.reason = reason
        self.kind = kind
        self.causes = causes


def _read(body: bytes) -> _Answer:
    try:
        answer = read_json_text(body)
        details = answer.get("details") or {}
        causes = tuple(cause.get("reason", "") for cause in details.get("causes") or ())
        return _Answer(
            _PATTERN.sub(_in_form, str(answer.get("message") or "")),
            str(answer.get("reason") or ""),
            str(details.get("kind") or ""),
            causes,
        )
    except (ValueError, AttributeError):
        return _Answer(body[:_MOST_TEXT].decode(errors="replace").strip())


def _in_form(found: re.Match[str]) -> str:
    form = FORMS.get(found[1])
    return f"does not have the required format{f'; {form}' if form else ''}"


def _forbidden(text: str, message: str, verb: str, resource: Resource, where: str) -> Forbidden:
    """The error for status 403. It says what to grant if a permission is missing."""
    if not _BY_RBAC.search(message):
        return Denied(text, HTTPStatus.FORBIDDEN)
    kind = where.partition(" ")[0]
    advice = (
        f'; grant it in a role: apiGroups: ["{resource.group}"], resources: ["{kind}"], verbs:'
        f' ["{verb}"]'
    )
    return Forbidden(f"{text}{advice}", HTTPStatus.FORBIDDEN)
