"""The problem if a catalog cannot be opened: properties, which waiting does not correct, or a
server that may answer later.
"""

import os

from backfill.api.catalog_properties import application_catalogs, catalog_variables
from backfill.api.errors import Problem, first_line
from backfill.api.manifests.problems import did_you_mean
from backfill.iceberg.library_errors import says_later

_NEED_URI = (None, "rest", "hive", "sql")
_INFERRED = ("http", "thrift", "sqlite", "postgresql")
"""Prefixes of a ``uri`` by which PyIceberg determines a catalog's type."""


def catalog_problem(name: str, field: str, error: Exception) -> Problem:
    """Why PyIceberg could not open a catalog.

    ``field`` is to blame only if nothing is known of a catalog of that name. Otherwise the catalog
    is wrong, whatever names it.
    """
    from backfill.iceberg.catalogs import known_catalogs

    properties = _properties(name)
    if not properties:
        message = f"catalog {name} is not configured"
        if why := application_catalogs(os.environ).get(name):
            message += f": {why}"
        (variable,) = catalog_variables(name, {"uri": ""})
        places = (
            f"give its properties in spark.sql.catalog.{name} of the application, catalog.{name} in"
            f" .pyiceberg.yaml, {variable} and others in the environment, or a Secret in"
            " spec.catalogs"
        )
        meant = did_you_mean(name, known_catalogs())
        return Problem(field, message, f"{meant} Otherwise {places}" if meant else places)
    wrong = _wrong_property(properties, error)
    if wrong is not None:
        key, what, fix = wrong
        message = f"catalog {name} cannot be opened: its property {key} {what}"
        return Problem("", message, "; ".join(filter(None, (fix, _correct(name, key)))))
    message = f"catalog {name} cannot be opened: {first_line(error)}"
    return Problem(
        "",
        message,
        _correct(name, "uri"),
        may_pass=not lasts(error),
        unavailable=says_later(error),
    )


def lasts(error: Exception) -> bool:
    """Whether an error of PyIceberg is about properties, or about missing libraries.

    Subclasses of ValueError do not count: they, such as pydantic's, may be about the answer of a
    server.
    """
    from pyiceberg.exceptions import NoSuchPropertyException, NotInstalledError

    spoken = (ImportError, NotInstalledError, NoSuchPropertyException)
    return type(error) is ValueError or isinstance(error, spoken)


def _properties(name: str) -> dict[str, str]:
    from backfill.iceberg.catalogs import catalog_properties

    return {key: str(value) for key, value in catalog_properties(name).items()}


def _wrong_property(properties: dict[str, str], error: Exception) -> tuple[str, str, str] | None:
    """The property to blame, what is wrong with it, and its valid values. Values of a ``uri`` are
    left out, because they contain credentials.
    """
    from pyiceberg.catalog import CatalogType
    from pyiceberg.exceptions import NotInstalledError
    from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema
    from sqlalchemy.exc import ArgumentError

    kind, uri = properties.get("type"), properties.get("uri", "")
    kinds = [known.value for known in CatalogType]
    choice = f"use one of {', '.join(kinds)}"
    if kind is not None and kind.lower() not in kinds:
        return "type", f'is "{kind}"', did_you_mean(kind, kinds) or choice
    if not uri and (kind.lower() if kind else None) in _NEED_URI:
        return "uri", "is missing", ""
    if kind is None and not uri.startswith(_INFERRED):
        return "type", "is missing, and the uri does not imply it", choice
    if isinstance(error, (ImportError, NotInstalledError)):
        return (
            "type" if kind else "uri",
            f"needs a package that is not installed: {first_line(error)}",
            "",
        )
    if isinstance(error, (MissingSchema, InvalidSchema, InvalidURL, ArgumentError)):
        return (
            "uri",
            f"is not a valid address for this type of catalog ({type(error).__name__})",
            "",
        )
    return None


def _correct(name: str, key: str) -> str:
    (variable,) = catalog_variables(name, {key: ""})
    return (
        "correct its PyIceberg properties: the keys of its Secret in spec.catalogs or, without a"
        f" Secret, catalog.{name} in .pyiceberg.yaml or {variable} in the environment or, without"
        f" these, spark.sql.catalog.{name} in the application"
    )
