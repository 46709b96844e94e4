"""Connection properties of catalogs, on their way to PyIceberg.

On a cluster they are in Secrets, which pods mount as files. The program in a driver finds them in
its environment, in PyIceberg's form: a dot is ``__``, a hyphen ``_``, and case is lost. So this
does not work for a property or a catalog with an underscore in its name. What the application's
Spark properties say is passed as JSON.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from backfill.api.errors import BadInput, Problem

CATALOGS_VARIABLE: Final = "BACKFILL_CATALOGS"
"""The environment variable with the directory of :func:`mounted_catalogs`."""
CATALOGS_DIRECTORY: Final = "/etc/backfill/catalogs"
"""That directory in pods: it has a directory for each catalog, with a file for each property."""
APPLICATION_CATALOGS_VARIABLE: Final = "BACKFILL_APPLICATION_CATALOGS"
"""The environment variable of :func:`application_catalogs`."""


def catalog_variables(catalog: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that pass a catalog's properties to PyIceberg."""
    return {
        f"PYICEBERG_CATALOG__{_part(catalog)}__{_part(name)}": value
        for name, value in properties.items()
    }


def application_catalogs(environment: Mapping[str, str]) -> dict[str, dict[str, str] | str]:
    """The catalogs of the application's Spark properties, by name: their properties, or why
    PyIceberg cannot open them.
    """
    found: dict[str, Any] = json.loads(environment.get(APPLICATION_CATALOGS_VARIABLE) or "{}")
    return found


def mounted_catalogs(directory: Path) -> dict[str, dict[str, str]]:
    """The properties of all mounted catalogs by name; empty if there are none."""
    return {
        catalog.name: mounted_properties(directory, catalog.name) for catalog in _visible(directory)
    }


def mounted_properties(directory: Path, catalog: str) -> dict[str, str]:
    """The properties of a mounted catalog; empty if it is not mounted.

    The line break at the end of a file is not part of the property.

    Raises:
        BadInput: a property is not text.
    """
    properties = {}
    for file in _visible(directory / catalog):
        try:
            properties[file.name] = file.read_text().removesuffix("\n")
        except UnicodeDecodeError:
            message = f"{file.name} in the Secret of catalog {catalog} is not text"
            fix = "PyIceberg's properties are text in UTF-8; remove it from that Secret"
            raise BadInput(Problem("spec.catalogs", message, fix)) from None
    return properties


def _part(name: str) -> str:
    return name.upper().replace("-", "_").replace(".", "__")


def _visible(directory: Path) -> list[Path]:
    """Files and directories, without those that the kubelet uses to replace them all at once."""
    return (
        sorted(path for path in directory.iterdir() if not path.name.startswith("."))
        if directory.is_dir()
        else []
    )
