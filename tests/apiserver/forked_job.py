"""The program of a job's pod in a process that has imported what it needs."""

import os
import runpy
from pathlib import Path


def run(environment: dict[str, str], kubeconfig: str, files: tuple[Path, Path]) -> None:
    """Runs it to its end with this environment alone. It writes into the files."""
    from kubernetes.config import kube_config
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    os.environ.clear()
    os.environ.update(environment)
    # read from the environment when they were imported
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = kubeconfig
    catalog._ENV_CONFIG = Config()
    for descriptor, file in enumerate(files, start=1):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    runpy.run_module("backfill.job", run_name="__main__")
