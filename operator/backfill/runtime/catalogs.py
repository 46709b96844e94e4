"""Catalogs whose properties are mounted into this pod.

PyIceberg takes properties from the environment when it is imported, so this imports nothing of it. Tasks and the processes
that commit are started by the JVM, which knows nothing of what this program adds to its environment: they ask here.
"""

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from backfill.api.catalogs import CATALOGS_VARIABLE, mounted_catalogs, mounted_properties


def publish_catalogs(environment: MutableMapping[str, str] = os.environ) -> None:
    """Puts the properties of all catalogs where PyIceberg finds them, for this program and the application's."""
    directory = environment.get(CATALOGS_VARIABLE)
    if directory:
        environment.update(mounted_catalogs(Path(directory)))


def catalog_properties(catalog: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The properties of a catalog, for processes that the JVM started; none where they are given in another way."""
    directory = environment.get(CATALOGS_VARIABLE)
    return mounted_properties(Path(directory), catalog) if directory else {}
