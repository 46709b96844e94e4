"""Catalogs whose properties are mounted into this pod.

PyIceberg takes properties from the environment when it is imported, so this imports nothing of it.
Tasks and the processes that commit are started by the JVM, which knows nothing of what this program
adds to its environment: they look at the mounted files themselves, see
:func:`backfill.iceberg.catalogs.catalog_properties`.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

from backfill.api.catalogs import CATALOGS_VARIABLE, catalog_variables, mounted_catalogs


def publish_catalogs(environment: MutableMapping[str, str] = os.environ) -> None:
    """Puts the properties of all catalogs where PyIceberg finds them, for this program and the
    application's.
    """
    directory = environment.get(CATALOGS_VARIABLE)
    for name, catalog in mounted_catalogs(Path(directory)).items() if directory else ():
        environment.update(catalog_variables(name, catalog.properties))
