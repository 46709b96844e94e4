"""Catalogs whose properties are mounted into this pod.

PyIceberg reads properties from the environment when it is imported, so this module must not import
it. Tasks, and the processes that commit, are started by the JVM and do not get what this program
adds to its environment: they read the mounted files themselves, see
:func:`backfill.iceberg.catalogs.catalog_properties`.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

from backfill.api.catalog_properties import CATALOGS_VARIABLE, catalog_variables, mounted_catalogs


def publish_catalogs(environment: MutableMapping[str, str] = os.environ) -> None:
    """Puts the properties of all mounted catalogs into the environment, where PyIceberg reads them,
    also for the application.
    """
    directory = environment.get(CATALOGS_VARIABLE)
    for name, properties in mounted_catalogs(Path(directory)).items() if directory else ():
        environment.update(catalog_variables(name, properties))
