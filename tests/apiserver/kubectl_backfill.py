"""The command line as a user of a cluster has it: ``kubectl backfill``."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backfill.cli.main import main
from local_runs import Ended, run_here
from waiting import PATIENCE_SECONDS

KubectlBackfill = Callable[..., Ended]
"""Runs it with arguments; ``kubeconfig`` is whose it is, ``namespace`` where (None: nothing is
said).
"""


def runner(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    kubeconfig: Path,
    namespace: str,
) -> KubectlBackfill:
    """Runs the program in this process, as kubectl would call it."""
    default_kubeconfig, default_namespace = kubeconfig, namespace

    def run(
        *arguments: str,
        kubeconfig: Path = default_kubeconfig,
        namespace: str | None = default_namespace,
    ) -> Ended:
        # The client reads the environment once, when it is imported.
        monkeypatch.setattr(
            "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig)
        )
        place = ["-n", namespace] if namespace else []
        program = "/usr/local/bin/kubectl-backfill"
        return run_here(main, monkeypatch, capfd, program, *arguments, *place)

    return run


def installed_alone(module: str, *arguments: str, kubeconfig: Path) -> Ended:
    """A program of the extra ``[cli]`` in a process of its own, where none of the libraries for
    tables can be imported.
    """
    blocked = (
        "import sys; sys.modules |= dict.fromkeys(('numpy', 'pandas', 'pyarrow', 'pyiceberg',"
        " 'pyspark', 'kopf'))"
    )
    program = f"{blocked}; sys.argv[0] = 'kubectl-backfill'; from {module} import main; main()"
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    command = [sys.executable, "-c", program, *arguments]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@contextmanager
def started(kubeconfig: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The program in a process of its own, on the cluster of a kubeconfig; killed if it has not
    ended.
    """
    command = [sys.executable, "-m", "backfill", *arguments, "--kubeconfig", str(kubeconfig)]
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
