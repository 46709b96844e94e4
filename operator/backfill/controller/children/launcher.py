"""The small program that a driver pod begins with. The user's image knows nothing of it, so it is
mounted.
"""

from typing import Final

from backfill.kube.resources import Manifest

LAUNCHER_PATH: Final = "/etc/backfill/run.py"
"""Where the pod finds it."""
LAUNCHER_URI: Final = f"local://{LAUNCHER_PATH}"
"""The same, in Spark's words."""
LAUNCHER_KEY: Final = "run.py"
"""Its key in the ConfigMap."""

_PROGRAM = '''\
"""Runs the application's main program as a backfill. The environment says what to do."""

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
    """The ConfigMap that holds the launcher. It never changes, so the kubelet need not watch it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        "data": {LAUNCHER_KEY: _PROGRAM},
    }
