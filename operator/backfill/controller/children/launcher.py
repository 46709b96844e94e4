"""The small program that a driver pod starts with.

It is not in the user's image, so it is mounted.
"""

from typing import Final

from backfill.kube.resources import Manifest

LAUNCHER_PATH: Final = "/etc/backfill/run.py"
"""Path of the launcher in the pod."""
LAUNCHER_URI: Final = f"local://{LAUNCHER_PATH}"
"""URI of the launcher for Spark."""
LAUNCHER_KEY: Final = "run.py"
"""Key of the launcher in the ConfigMap."""

LAUNCHER: Final = '''\
"""Runs the application's main program as a backfill, or after one, as the environment says."""

import importlib.util
import runpy
import sys

if importlib.util.find_spec("backfill") is None:
    sys.exit(
        "error: this image has no backfill runtime; "
        "install the package backfill-operator[spark] in it with pip"
    )
runpy.run_module("backfill.runtime", run_name="__main__")
'''


def launcher_config_map(metadata: Manifest) -> Manifest:
    """The ConfigMap with the launcher. It is immutable, so the kubelet need not watch it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        "data": {LAUNCHER_KEY: LAUNCHER},
    }
