"""What the operator is told when it starts: options, each of which may also be given as an environment variable."""

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

from backfill.api.locations import LOCATION_FORM, LOCATION_PATTERN
from backfill.api.quantities import parse_bytes
from backfill.controller.manager.log_format import LogFormat
from backfill.iceberg.addresses import Network

_SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("text", "json")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be chosen."""

    namespaces: tuple[str, ...]
    """Where Backfills are looked after; empty: everywhere."""
    default_workspace: str | None
    """The URI below which Backfills without a workspace of their own keep plans and checkpoints."""
    workspaces_below: str | None
    """The location below which each namespace has a directory or prefix for its workspaces."""
    plan_in_operator_for: tuple[str, ...]
    """Namespaces whose jobs may run in processes of the operator (``planning.runIn: Operator``); ``*``: all."""
    local_directories: tuple[Path, ...]
    """Where tables and workspaces may be on this machine, for jobs in the operator; that of ``default_workspace`` as well."""
    allowed_addresses: tuple[Network, ...]
    """What jobs in the operator may connect to for a Backfill though it is near the operator only, such as its loopback."""
    workers: int
    """Turns taken at the same time."""
    jobs: int
    """Jobs done at the same time, each in a process."""
    job_memory: int
    """The most memory of a job's process, in bytes."""
    jobs_socket: Path | None
    """Where the operator listens for the container that runs jobs; None: they are processes of the operator's own."""
    jobs_user: int | None
    """The number of that container's user; None: the operator's own."""
    job_pods: int
    """Jobs done at the same time in pods of their own (``planning.runIn: Pod``)."""
    qps: float
    """Requests to the API server a second."""
    metrics_port: int
    """0: no metrics."""
    health_port: int
    """0: no probes."""
    log_level: str
    log_format: LogFormat
    kubeconfig: Path | None
    """None: the pod's own account, else the user's kubeconfig."""
    context: str | None
    leader_election_id: str
    """The Lease's name."""
    leader_election_namespace: str
    identity: str
    """How this process calls itself in the Lease; no two that are alive may share it."""


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings from the command line, and from the environment where that says nothing.

    Raises:
        SystemExit: an option is wrong (2), or help was asked for (0).
    """
    given = vars(_parser(environment).parse_args(arguments))
    return Settings(**{field.name: given[field.name] for field in fields(Settings)})


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="backfill-operator",
        description="Looks after the Backfills of a cluster: plans them, runs their applications and publishes their results.",
        epilog="Each option may be given as an environment variable: --job-memory as BACKFILL_OPERATOR_JOB_MEMORY.",
    )
    add = _adder(parser, environment)
    add("--namespaces", _names, "", "look after these namespaces only, separated by commas (default: all)")
    add("--default-workspace", _location, None, "URI below which Backfills without spec.workspace keep plans and checkpoints")
    below = "location below which workspaces have to be, each in a part named after its namespace (default: anywhere)"
    add("--workspaces-below", _location, None, below)
    trusted = "namespaces whose jobs may run in the operator (planning.runIn: Operator), separated by commas; * for all"
    add("--plan-in-operator-for", _names, "*", trusted)
    add("--local-directories", _paths, "", "directories of shared volumes that jobs may use, separated by commas")
    allowed = "networks that jobs may connect to though they are loopback, link-local or metadata addresses, separated by commas"
    add("--allowed-addresses", _networks, "", allowed)
    add("--workers", _at_least(1, int), "8", "Backfills worked on at the same time")
    add("--jobs", _at_least(1, int), "2", "planning and publishing jobs done at the same time, each in a process")
    add("--job-memory", parse_bytes, "1536Mi", "the most memory of a job's process; that plans over a million files")
    container = "socket on which the operator listens for the container that runs jobs (default: they run beside the operator)"
    add("--jobs-socket", Path, None, container)
    add("--jobs-user", _at_least(0, int), None, "number of that container's user (default: the operator's own)")
    add("--job-pods", _at_least(1, int), "10", "jobs done at the same time in pods (planning.runIn: Pod)")
    add("--qps", _at_least(1.0, float), "50", "requests to the API server a second, at the most")
    add("--metrics-port", _at_least(0, int), "8080", "port of /metrics; 0 for none")
    add("--health-port", _at_least(0, int), "8081", "port of /healthz and /readyz; 0 for none")
    add("--log-level", _one_of(_LEVELS), "info", f"what is logged: {', '.join(_LEVELS)}")
    add("--log-format", _one_of(_FORMATS), "json", "how it is logged: text, json")
    add("--kubeconfig", Path, None, "kubeconfig file (default: the pod's service account, else the user's file)")
    add("--context", str, None, "context of the kubeconfig (default: the current one)")
    add("--leader-election-id", str, "backfill-operator", "name of the Lease that makes one of several replicas the leader")
    add("--leader-election-namespace", str, _own_namespace(environment), "namespace of the Lease")
    add("--identity", str, _own_identity(environment), "name of this replica in the Lease")
    return parser


def _adder(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> Callable[..., None]:
    def add(option: str, kind: Callable[[str], Any], default: str | None, text: str) -> None:
        variable = f"BACKFILL_OPERATOR_{option.removeprefix('--').replace('-', '_').upper()}"
        shown = "" if not default or "default" in text else f" (default: {default})"
        parser.add_argument(option, type=kind, default=environment.get(variable, default), help=f"{text}{shown}")

    return add


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def _location(text: str) -> str | None:
    if text and re.fullmatch(LOCATION_PATTERN, text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no location of a workspace; {LOCATION_FORM}")
    return text or None


def _paths(text: str) -> tuple[Path, ...]:
    for name in _names(text):
        if not name.startswith("/") or not name.strip("/"):
            raise argparse.ArgumentTypeError(f"{name} is no absolute path below /")
    return tuple(Path(name) for name in _names(text))


def _networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(name) for name in _names(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; write networks as 127.0.0.1/32,169.254.20.10/32") from None


def _one_of(words: Sequence[str]) -> Callable[[str], str]:
    def word(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"{text} is none of {', '.join(words)}")
        return text

    return word


def _at_least(least: float, kind: type[int] | type[float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    return number


def _own_namespace(environment: Mapping[str, str]) -> str:
    if namespace := environment.get("POD_NAMESPACE"):
        return namespace
    return _SERVICE_ACCOUNT_NAMESPACE.read_text().strip() if _SERVICE_ACCOUNT_NAMESPACE.exists() else "default"


def _own_identity(environment: Mapping[str, str]) -> str:
    """A pod's name is its own for good: a container that starts again in it goes on with its Lease at once."""
    return environment.get("POD_NAME") or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
