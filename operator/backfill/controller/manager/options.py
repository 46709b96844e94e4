"""Options of the operator. Each may also be set by an environment variable."""

import argparse
import os
import re
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from backfill.api.quantities import parse_bytes
from backfill.api.workspace_locations import LOCATION_FORM, LOCATION_PATTERN
from backfill.controller.manager.log_format import LogFormat
from backfill.iceberg.allowed_addresses import Network

_SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("text", "json")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings."""

    namespaces: tuple[str, ...]
    """Namespaces whose Backfills are reconciled; empty for all."""
    default_workspace: str | None
    """Location of plans and checkpoints of Backfills without a workspace of their own; None if
    these are refused.
    """
    workspaces_below: str | None
    """Location with a directory or prefix for each namespace, in which its workspaces must be."""
    plan_in_operator_for: tuple[str, ...]
    """Namespaces whose jobs may run in processes of the operator (``planning.runIn:
    Operator``); ``*``: all.
    """
    decision_names: str
    """Whether the names of those who decide about results are ``verified`` by an admission policy,
    or as ``claimed``.
    """
    local_directories: tuple[Path, ...]
    """Directories of this machine that may hold tables and workspaces for jobs in the operator, in
    addition to that of ``default_workspace``.
    """
    allowed_addresses: tuple[Network, ...]
    """Addresses that jobs in the operator may connect to for a Backfill although they are reachable
    only from the operator, such as its loopback.
    """
    workers: int
    """Number of reconciles at the same time."""
    jobs: int
    """Number of jobs at the same time in processes of the operator."""
    job_memory: int
    """Memory limit of a job's process, in bytes."""
    jobs_socket: Path | None
    """Socket on which the operator waits for the container that runs jobs; None if jobs are
    processes of the operator itself.
    """
    jobs_user: int | None
    """User ID of that container; None for the operator's own."""
    job_pods: int
    """Number of jobs at the same time in pods of their own (``planning.runIn: Pod``)."""
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
    given = vars(parser(environment).parse_args(arguments))
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
            "Each option may be given as an environment variable: --job-memory as"
            " BACKFILL_OPERATOR_JOB_MEMORY."
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
    if text and re.fullmatch(LOCATION_PATTERN, text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a location of a workspace; {LOCATION_FORM}"
        )
    return text or None


def _paths(text: str) -> tuple[Path, ...]:
    for name in _names(text):
        if not name.startswith("/") or not name.strip("/"):
            raise argparse.ArgumentTypeError(f"{name} is not an absolute path below /")
    return tuple(Path(name) for name in _names(text))


def _networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(name) for name in _names(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{error}; write networks as 127.0.0.1/32,169.254.20.10/32"
        ) from None


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
        "URI below which Backfills without spec.workspace keep plans and checkpoints",
    ),
    (
        "--workspaces-below",
        _location,
        None,
        (
            "location below which each namespace has its own part, LOCATION/NAMESPACE. The"
            " workspace of a Backfill that is planned in the operator, and the locations of its"
            " outputs, must be within its namespace's part (default: anywhere)"
        ),
    ),
    (
        "--plan-in-operator-for",
        _names,
        "*",
        (
            "namespaces whose jobs may run in processes of the operator, separated by commas; * for"
            " all. Jobs of other namespaces run in pods; their Backfills are refused if they set"
            " planning.runIn: Operator"
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
    (
        "--local-directories",
        _paths,
        "",
        (
            "directories of shared volumes, separated by commas: jobs in the operator open tables,"
            " SQLite catalogs and workspaces on disk only below these, and below"
            " --default-workspace if that is a path"
        ),
    ),
    (
        "--allowed-addresses",
        _networks,
        "",
        (
            "networks, separated by commas, that jobs in the operator may connect to for a Backfill"
            " although they are loopback, link-local or metadata addresses, or the API server's"
        ),
    ),
)
_JOBS: tuple[_Option, ...] = (
    (
        "--jobs",
        _at_least(1, int),
        "2",
        (
            "maximum number of concurrent jobs in the operator (planning, publishing and others),"
            " each in a process"
        ),
    ),
    (
        "--job-memory",
        parse_bytes,
        "1536Mi",
        (
            "maximum memory of a job's process; the default fits a plan over a million files, which"
            " takes about 1 GiB"
        ),
    ),
    (
        "--jobs-socket",
        Path,
        None,
        (
            "Unix socket on which the operator listens for the container that runs its jobs, in a"
            " directory that only the operator can write to (default:"
            " jobs are child processes of the operator)"
        ),
    ),
    (
        "--jobs-user",
        _at_least(0, int),
        None,
        (
            "user ID of that container; connections of other users are closed (default: the"
            " operator's own)"
        ),
    ),
    (
        "--job-pods",
        _at_least(1, int),
        "10",
        (
            "maximum number of concurrent jobs in pods (planning.runIn: Pod), across all"
            " namespaces; further jobs wait"
        ),
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
        "port of /metrics, which may be the same as --health-port; 0 disables it",
    ),
    ("--health-port", _at_least(0, int), "8081", "port of /healthz and /readyz; 0 disables it"),
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
