"""Options of the operator. Each may also be set by an environment variable."""

import argparse
import os
import re
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from backfill.api.workspace_locations import LOCATION_FORM, LOCATION_PATTERN
from backfill.controller.manager.log_format import LogFormat

_SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("text", "json")
NAMESPACE: Final = "{namespace}"
"""Stands for a Backfill's namespace in the default workspace."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings."""

    namespaces: tuple[str, ...]
    """Namespaces whose Backfills are reconciled; empty for all."""
    default_workspace: str | None
    """Location of plans and checkpoints of Backfills without a workspace of their own; None if
    these are refused. ``{namespace}`` in it is the Backfill's namespace.
    """
    decision_names: str
    """Whether the names of those who decide about results are ``verified`` by an admission policy,
    or as ``claimed``.
    """
    workers: int
    """Number of reconciles at the same time."""
    job_image: str
    """Image of the pods of jobs."""
    job_image_pull_policy: str | None
    """Its pull policy; None for Kubernetes' default."""
    job_pods: int
    """Number of jobs at the same time."""
    qps: float
    """Requests to the API server per second."""
    metrics_port: int
    """Port of the metrics; 0 for none."""
    health_port: int
    """Port of the probes; 0 for none."""
    log_level: str
    log_format: LogFormat
    kubeconfig: Path | None
    """Kubeconfig to use; None for the pod's service account,
    or outside of a pod the user's kubeconfig.
    """
    context: str | None
    leader_election_id: str
    """Name of the Lease."""
    leader_election_namespace: str
    identity: str
    """Name of this process in the Lease. No other process may have it at the same time."""


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings from the command line, or else from the environment.

    Raises:
        SystemExit: an option is wrong (2), or help was requested (0).
    """
    options = parser(environment)
    given = vars(options.parse_args(arguments))
    if not given["job_image"]:
        options.error("--job-image is missing: set the image of job pods")
    return Settings(**{field.name: given[field.name] for field in fields(Settings)})


def variable(option: str) -> str:
    """The environment variable for an option."""
    return f"BACKFILL_OPERATOR_{option.removeprefix('--').replace('-', '_').upper()}"


def parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """The parser of all options with their help, from which the documentation is generated."""
    made = argparse.ArgumentParser(
        prog="backfill-operator",
        description=(
            "The controller of Backfills: plans them, runs their"
            " applications and publishes their results."
        ),
        epilog=(
            "Each option may be given as an environment variable: --job-pods as"
            " BACKFILL_OPERATOR_JOB_PODS."
        ),
    )
    for option, kind, default, text in (*_BACKFILLS, *_JOBS, *_PROCESS, *_leadership(environment)):
        shown = "" if not default or "(default: " in text else f" (default: {default})"
        given = environment.get(variable(option), default)
        made.add_argument(option, type=kind, default=given, help=f"{text}{shown}")
    return made


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def _location(text: str) -> str | None:
    if text and re.fullmatch(LOCATION_PATTERN, text.replace(NAMESPACE, "namespace")) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a location of a workspace; {LOCATION_FORM}"
        )
    return text or None


def _one_of(words: Sequence[str]) -> Callable[[str], str]:
    def word(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"{text} is not one of {', '.join(words)}")
        return text

    return word


def _at_least(least: float, kind: type[int] | type[float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    return number


_Option = tuple[str, Callable[[str], Any], str | None, str]
"""An option, the function that reads its text, its default, and its help. A default that the help
names is not appended to it.
"""

_BACKFILLS: tuple[_Option, ...] = (
    (
        "--namespaces",
        _names,
        "",
        "reconcile only Backfills of these namespaces, separated by commas (default: all)",
    ),
    (
        "--default-workspace",
        _location,
        None,
        (
            "location below which Backfills without spec.workspace keep plans and checkpoints;"
            f" {NAMESPACE} in it is replaced by the Backfill's namespace"
        ),
    ),
    (
        "--decision-names",
        _one_of(("claimed", "verified")),
        "claimed",
        (
            "whether an admission policy verifies who approves, rejects and undoes results; the"
            " status of Backfills says so"
        ),
    ),
)
_JOBS: tuple[_Option, ...] = (
    (
        "--job-image",
        str,
        None,
        "image of the pods that plan, publish and clean up, of the operator's version (required)",
    ),
    (
        "--job-image-pull-policy",
        _one_of(("Always", "IfNotPresent", "Never")),
        None,
        "pull policy of that image: Always, IfNotPresent or Never (default: as Kubernetes has it)",
    ),
    (
        "--job-pods",
        _at_least(1, int),
        "10",
        "maximum number of concurrent job pods, across all namespaces; further jobs wait",
    ),
)
_PROCESS: tuple[_Option, ...] = (
    ("--workers", _at_least(1, int), "8", "maximum number of concurrent reconciles"),
    (
        "--qps",
        _at_least(1.0, float),
        "50",
        "maximum number of requests to the API server per second",
    ),
    (
        "--metrics-port",
        _at_least(0, int),
        "8080",
        "port of /metrics; 0 disables it",
    ),
    ("--health-port", _at_least(0, int), "8081", "port of /healthz; 0 disables it"),
    (
        "--log-level",
        _one_of(_LEVELS),
        "info",
        f"minimum severity of log records: {', '.join(_LEVELS)}",
    ),
    (
        "--log-format",
        _one_of(_FORMATS),
        "json",
        (
            "json or text, one line per record; records about a Backfill have its namespace, name,"
            " uid and attempt"
        ),
    ),
    (
        "--kubeconfig",
        Path,
        None,
        "kubeconfig file (default: the pod's service account, else the user's file)",
    ),
    ("--context", str, None, "context of the kubeconfig (default: the current one)"),
)


def _leadership(environment: Mapping[str, str]) -> tuple[_Option, ...]:
    namespace = "namespace of the Lease (default: the pod's)"
    identity = (
        "name of this replica in the Lease, unique among replicas (default: POD_NAME, else host"
        " name and a random part)"
    )
    return (
        (
            "--leader-election-id",
            str,
            "backfill-operator",
            "name of the Lease for leader election between replicas",
        ),
        ("--leader-election-namespace", str, _own_namespace(environment), namespace),
        ("--identity", str, _own_identity(environment), identity),
    )


def _own_namespace(environment: Mapping[str, str]) -> str:
    if namespace := environment.get("POD_NAMESPACE"):
        return namespace
    return (
        _SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
        if _SERVICE_ACCOUNT_NAMESPACE.exists()
        else "default"
    )


def _own_identity(environment: Mapping[str, str]) -> str:
    """The name of the pod, which keeps it for its lifetime: a container that restarts in it
    continues with its Lease at once.
    """
    return environment.get("POD_NAME") or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
