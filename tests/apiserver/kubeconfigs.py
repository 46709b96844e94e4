"""Kubeconfig files: written for the identities of a test, and judged before a given one is used."""

import base64
from pathlib import Path
from urllib.parse import urlsplit

import yaml

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_DISPOSABLE_CONTEXTS = ("kind-", "k3d-")


def write_kubeconfig(
    path: Path, server: str, ca: bytes, token: str, namespace: str = "default"
) -> Path:
    """A kubeconfig for whoever the token belongs to."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca).decode()}
    context = {"cluster": "tests", "user": "user", "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": context}],
        "current-context": "tests",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


def address_and_ca(path: Path) -> tuple[str, bytes]:
    """Where the current context's server is, and the certificates it is verified with."""
    cluster = _current(path)[1]
    if data := cluster.get("certificate-authority-data"):
        return cluster["server"], base64.b64decode(data)
    return cluster["server"], (path.parent / cluster["certificate-authority"]).read_bytes()


def token_of(path: Path) -> str:
    """The token of the current context's user; fails where it proves itself in another way."""
    config = yaml.safe_load(path.read_text())
    name = next(
        entry["context"]["user"]
        for entry in config["contexts"]
        if entry["name"] == config["current-context"]
    )
    return str(next(entry["user"]["token"] for entry in config["users"] if entry["name"] == name))


def why_refused(path: Path) -> str | None:
    """Why tests must not touch this cluster; None for one that is clearly made to be thrown away.

    Tests write cluster-wide resources and delete what they find in their namespaces, so only a
    cluster on this machine or one that is named as a disposable one is accepted.
    """
    try:
        context, cluster = _current(path)
        host = urlsplit(cluster["server"]).hostname
    except (OSError, KeyError, TypeError, StopIteration, yaml.YAMLError):
        return f"{path} is not a kubeconfig with a current context"
    if host in _LOOPBACK or context.startswith(_DISPOSABLE_CONTEXTS):
        return None
    return (
        f"the cluster of context {context} at {host} may be in use: tests accept one on localhost,"
        " or of kind or k3d"
    )


def _current(path: Path) -> tuple[str, dict[str, str]]:
    config = yaml.safe_load(path.read_text())
    name = config["current-context"]
    context = next(entry["context"] for entry in config["contexts"] if entry["name"] == name)
    cluster = next(
        entry["cluster"] for entry in config["clusters"] if entry["name"] == context["cluster"]
    )
    return name, cluster
