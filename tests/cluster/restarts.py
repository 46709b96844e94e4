"""Other programs of the cluster, ended and started again.

One that runs in a pod is ended through the API. For one that does not, the environment names a
command that does it and returns when it is done.
"""

import os
import shlex
import subprocess

from live_cluster import PATIENCE_SECONDS, Cluster, until

import missing

_SPARK_OPERATOR = "app.kubernetes.io/name=spark-operator,app.kubernetes.io/component=controller"


def restart_spark_operator(cluster: Cluster) -> None:
    """Its pods are killed, or the command of ``RESTART_SPARK_OPERATOR`` is run."""
    pods = cluster.items("api/v1/pods", labelSelector=_SPARK_OPERATOR)
    if not pods:
        _run("RESTART_SPARK_OPERATOR")
    for pod in pods:
        cluster.kill_pod(pod)


def restart_api_server(cluster: Cluster) -> None:
    """Runs the command of ``RESTART_API_SERVER``, and returns when the server is ready."""
    _run("RESTART_API_SERVER")
    until(lambda: cluster.admin.get("readyz").ok, "the API server is ready")


def _run(variable: str) -> None:
    command = os.environ.get(variable)
    if command is None:
        missing.skip(f"{variable} names no command that does it")
    subprocess.run(
        shlex.split(command), check=True, timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL
    )
