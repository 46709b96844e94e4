"""How a pod reaches its own API server: the address that the kubelet puts into its environment, and
the token of its service account.
"""

import os
from pathlib import Path
from typing import Final

from kubernetes.client import Configuration

from backfill.api.errors import BackfillError

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def pod_configuration() -> Configuration:
    """The configuration of a client in a pod.

    Raises:
        BackfillError: this process is not in a pod, or its pod has no service account token.
    """
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT")
    if not (host and port):
        raise BackfillError(
            "this process is not in a pod: KUBERNETES_SERVICE_HOST and"
            " KUBERNETES_SERVICE_PORT are not set"
        )
    if not (ACCOUNT / "token").exists():
        raise BackfillError(
            "this pod has no service account token: automountServiceAccountToken must be true"
        )
    return service_account(f"https://{_bracketed(host)}:{port}", ACCOUNT)


def pod_namespace() -> str:
    """The namespace of this pod.

    Raises:
        BackfillError: the file with it cannot be read.
    """
    file = ACCOUNT / "namespace"
    try:
        return file.read_text().strip()
    except OSError as error:
        raise BackfillError(
            f"the namespace of this pod is unknown: {file} cannot be read ({error.strerror}); a"
            " projected volume for the service account must have the item namespace"
        ) from error


def service_account(url: str, directory: Path) -> Configuration:
    """The configuration of a client that authenticates with the files of a service account.

    The kubelet replaces these files while the pod runs, so the token is read for every request, and
    the certificate authority for every connection. Proxies of the environment are for destinations
    outside the cluster.
    """
    token = directory / "token"

    def read_token(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {token.read_text().strip()}"

    configuration = Configuration(host=url)
    configuration.proxy = None
    configuration.ssl_ca_cert = str(directory / "ca.crt")
    configuration.refresh_api_key_hook = read_token  # type: ignore[assignment]
    return configuration


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
