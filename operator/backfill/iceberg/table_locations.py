"""Locations in a table's metadata. Every library must parse them as the same place."""

from collections.abc import Iterator

from pyiceberg.table import Table, TableProperties

from backfill.api.errors import Problem

_PATHS = (TableProperties.WRITE_DATA_PATH, TableProperties.WRITE_METADATA_PATH)


def is_unambiguous(location: str) -> bool:
    """Whether no part of a location is removed or resolved: libraries drop what follows ``?`` or
    ``#`` and remove line breaks, and some file systems resolve ``..``.
    """
    return (
        location.isprintable()
        and not any(mark in location for mark in "?#\\")
        and ".." not in location.split("/")
    )


def ambiguous_locations(table: Table, name: str, field: str) -> Iterator[Problem]:
    """Problems of the locations in which a table keeps its files."""
    metadata = table.metadata
    locations = {"location": metadata.location} | {
        key: metadata.properties[key] for key in _PATHS if key in metadata.properties
    }
    for what, location in locations.items():
        if not is_unambiguous(location):
            message = (
                f"the {what} of {name} is {location!r}, which libraries interpret as different"
                " places"
            )
            yield Problem(field, message, "use a location without ?, #, \\, line breaks and ..")
