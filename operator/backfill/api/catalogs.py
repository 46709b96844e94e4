"""Connection properties of catalogs on their way to PyIceberg, which takes them from the environment when it is imported.

On a cluster they stand in Secrets: the operator reads them for its own jobs, pods have them mounted as files. In PyIceberg's
variables a dot is ``__`` and a hyphen ``_``, and case is lost; so a property or a catalog whose name has an underscore
can not be given this way.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

CATALOGS_VARIABLE: Final = "BACKFILL_CATALOGS"
"""The environment variable that names the directory of :func:`mounted_catalogs`."""
CATALOGS_DIRECTORY: Final = "/etc/backfill/catalogs"
"""Where pods have it: a directory for each catalog, in it a file for each property."""


def catalog_variables(catalog: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that give PyIceberg a catalog's properties."""
    return {f"PYICEBERG_CATALOG__{_part(catalog)}__{_part(name)}": value for name, value in properties.items()}


def mounted_catalogs(directory: Path) -> dict[str, str]:
    """The variables of all catalogs that are mounted; none where nothing is.

    The line break that ends a file is not a part of the property.
    """
    variables: dict[str, str] = {}
    for catalog in _visible(directory):
        variables |= catalog_variables(catalog.name, mounted_properties(directory, catalog.name))
    return variables


def mounted_properties(directory: Path, catalog: str) -> dict[str, str]:
    """The properties of one catalog that is mounted; none where it is not."""
    return {file.name: file.read_text().removesuffix("\n") for file in _visible(directory / catalog)}


def _part(name: str) -> str:
    return name.upper().replace("-", "_").replace(".", "__")


def _visible(directory: Path) -> list[Path]:
    """Without what the kubelet keeps beside the files to replace them all at once."""
    return sorted(path for path in directory.iterdir() if not path.name.startswith(".")) if directory.is_dir() else []
