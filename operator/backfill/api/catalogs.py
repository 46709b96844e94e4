"""Connection properties of catalogs on their way to PyIceberg.

On a cluster they stand in Secrets: the operator reads them for its own jobs, pods have them mounted as files. The program in
a driver finds them in its environment, as PyIceberg does: in its variables a dot is ``__`` and a hyphen ``_``, and case is
lost; so a property or a catalog whose name has an underscore cannot be given to it this way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

CATALOGS_VARIABLE: Final = "BACKFILL_CATALOGS"
"""The environment variable that names the directory of :func:`mounted_catalogs`."""
CATALOGS_DIRECTORY: Final = "/etc/backfill/catalogs"
"""Where pods have it: a directory for each catalog, in it a file for each property."""


@dataclass(frozen=True, slots=True)
class GivenCatalog:
    """A catalog that a job in the operator may open."""

    properties: Mapping[str, str] = field(repr=False)
    """PyIceberg's. They hold credentials."""
    own: bool = False
    """Whether they are the operator's own, and not those of a Secret that a Backfill names."""


def catalog_variables(catalog: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that give PyIceberg a catalog's properties."""
    return {f"PYICEBERG_CATALOG__{_part(catalog)}__{_part(name)}": value for name, value in properties.items()}


def mounted_catalogs(directory: Path) -> dict[str, GivenCatalog]:
    """All catalogs that are mounted, by name; none where nothing is."""
    return {catalog.name: GivenCatalog(mounted_properties(directory, catalog.name), own=True) for catalog in _visible(directory)}


def mounted_properties(directory: Path, catalog: str) -> dict[str, str]:
    """The properties of one catalog that is mounted; none where it is not.

    The line break that ends a file is not a part of the property.
    """
    return {file.name: file.read_text().removesuffix("\n") for file in _visible(directory / catalog)}


def _part(name: str) -> str:
    return name.upper().replace("-", "_").replace(".", "__")


def _visible(directory: Path) -> list[Path]:
    """Without what the kubelet keeps beside the files to replace them all at once."""
    return sorted(path for path in directory.iterdir() if not path.name.startswith(".")) if directory.is_dir() else []
