"""What answers of the API server stand for, and what people are told."""

import json
from typing import Any

import pytest

from backfill.api.errors import ConflictError
from backfill.api.field_types import INPUT_NAME_PATTERN
from backfill.kube.request_errors import (
    AlreadyExists,
    Denied,
    Expired,
    Faltering,
    Forbidden,
    Invalid,
    KindMissing,
    NamespaceEnding,
    NotFound,
    Refused,
    Unauthorized,
    Unreachable,
    error_of,
)
from backfill.kube.resources import BACKFILL, SPLIT_ASSIGNMENT, Resource


def answer(reason: str, message: str = "in words", **details: Any) -> bytes:
    return json.dumps(
        {"kind": "Status", "reason": reason, "message": message, "details": details}
    ).encode()


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (409, answer("AlreadyExists"), AlreadyExists),
        (409, answer("Conflict"), ConflictError),
        (404, answer("NotFound", kind="backfills"), NotFound),
        (404, b"404 page not found\n", KindMissing),
        (410, answer("Expired"), Expired),
        (401, answer("Unauthorized"), Unauthorized),
        (403, answer("Forbidden", 'User "a" cannot get resource "backfills"'), Forbidden),
        (
            403,
            answer("Forbidden", 'pods "a" is forbidden: violates PodSecurity "restricted:latest"'),
            Denied,
        ),
        (
            422,
            answer("Invalid", "ValidatingAdmissionPolicy 'a' with binding 'b' denied request: c"),
            Denied,
        ),
        (400, answer("BadRequest", 'admission webhook "a" denied the request: b'), Denied),
        (403, answer("Forbidden", causes=[{"reason": "NamespaceTerminating"}]), NamespaceEnding),
        (422, answer("Invalid", kind="Backfill"), Invalid),
        (422, answer("Invalid"), Refused),
        (400, answer("BadRequest"), Refused),
        (429, answer("TooManyRequests"), Unreachable),
        (500, answer("InternalError", "failed calling webhook"), Faltering),
        (500, b"", Faltering),
        (504, answer("Timeout"), Unreachable),
        (503, b"<html>gateway</html>", Unreachable),
        (503, b"[]", Unreachable),
        (503, b'{"message": null, "reason": {}}', Unreachable),
        (520, b"", Unreachable),
    ],
)
def test_each_cause_has_its_error(status: int, body: bytes, error: type[Exception]) -> None:
    assert type(error_of(status, body, "get", BACKFILL, "backfills a/b")) is error


def test_a_missing_permission_is_told_with_what_to_grant() -> None:
    message = (
        'backfills.backfill.dev "july" is forbidden: User "system:serviceaccount:b:o" cannot patch'
        ' resource "backfills/status"'
    )
    error = error_of(
        403, answer("Forbidden", message), "patch", BACKFILL, "backfills/status streaming/july"
    )
    assert str(error).startswith(
        "cannot patch backfills/status streaming/july: backfills.backfill.dev"
    )
    assert str(error).endswith(
        'apiGroups: ["backfill.dev"], resources: ["backfills/status"], verbs: ["patch"]'
    )


def test_a_quota_is_no_missing_permission() -> None:
    message = (
        'sparkapplications "july-a1" is forbidden: exceeded quota: small, requested: count=1, used:'
        " count=4"
    )
    assert "grant" not in str(
        error_of(403, answer("Forbidden", message), "create", BACKFILL, "sparkapplications a")
    )


def test_definitions_that_are_too_old_are_told_so_and_not_asked_again() -> None:
    message = (
        "failed to create typed patch object (a/b; Kind=Backfill): .status.news: field not declared"
        " in schema"
    )
    error = error_of(
        500, answer("InternalError", message), "patch", BACKFILL, "backfills/status a/b"
    )
    assert isinstance(error, Refused)
    assert "definitions are older than this program" in str(error)


def test_a_kind_without_a_definition_is_told_by_its_name() -> None:
    error = error_of(404, b"404 page not found", "list", SPLIT_ASSIGNMENT, "splitassignments")
    assert (
        str(error)
        == "the API server serves no splitassignments of apis/backfill.dev/v1alpha1: install its"
        " definition"
    )


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (Resource("", "v1", "pods"), "/api/v1/namespaces/n/pods/x/log"),
        (BACKFILL, "/apis/backfill.dev/v1alpha1/namespaces/n/backfills/x/log"),
        (Resource("", "v1", "namespaces", namespaced=False), "/api/v1/namespaces/x/log"),
    ],
)
def test_every_object_has_its_path(resource: Resource, path: str) -> None:
    assert resource.path("n", "x", "log") == path


def test_without_a_namespace_all_of_them_are_meant() -> None:
    assert BACKFILL.path() == "/apis/backfill.dev/v1alpha1/backfills"


def test_a_value_of_the_wrong_form_is_explained_without_the_pattern() -> None:
    """As in the condition of a child that a definition refuses."""
    message = (
        'Backfill.backfill.dev "july" is invalid: [spec.sources[0].name: Invalid value: "a b":'
        f" spec.sources[0].name in body should match '{INPUT_NAME_PATTERN}', spec.workspace:"
        " Invalid value: \"x\": spec.workspace in body should match '^[(]ours[)]$']"
    )
    error = error_of(
        422, answer("Invalid", message, kind="Backfill"), "create", BACKFILL, "backfills a/july"
    )
    assert str(error).endswith(
        '[spec.sources[0].name: Invalid value: "a b": does not have the required format; use at'
        " most 63 letters, digits, '-', '_' and '.', spec.workspace: Invalid value: \"x\": does not"
        " have the required format]"
    )
