"""Opens catalogs, for all processes: jobs, drivers and runs on one machine.

Neither a catalog's server nor a table decides which code is loaded or where credentials are sent.
"""

import logging
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pyiceberg.table.locations
from pyiceberg.catalog import (
    AVAILABLE_CATALOGS,
    Catalog,
    CatalogType,
    _check_required_catalog_properties,
    infer_catalog_type,
)
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.locations import LocationProvider, _import_location_provider
from pyiceberg.utils.config import Config

from backfill.api.catalog_properties import (
    CATALOGS_VARIABLE,
    application_catalogs,
    mounted_catalogs,
    mounted_properties,
)
from backfill.iceberg.answer_limits import bound_statements
from backfill.iceberg.server_properties import from_server, with_answer

_LOG = logging.getLogger(__name__)
ANY_REGION: Final = "us-east-1"
"""For object stores that are not AWS."""


def catalog_properties(name: str, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The properties of a catalog: those of PyIceberg's configuration, and those that are mounted.
    If there are none, those of the application's Spark properties; empty if the catalog is unknown.
    """
    known: dict[str, Any] = {**(Config().get_catalog_config(name) or {})}
    if directory := environment.get(CATALOGS_VARIABLE):
        known |= mounted_properties(Path(directory), name)
    return known or _of_the_application(name, environment)


def _of_the_application(name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    found = application_catalogs(environment).get(name)
    if not isinstance(found, dict):
        return {}
    if "s3.endpoint" in found and not found.keys() & {"s3.region", "client.region"}:
        # otherwise AWS would be asked for the bucket's region
        found["s3.region"] = default_region(environment) or ANY_REGION
    return found


def default_region(environment: Mapping[str, str]) -> str | None:
    """The region in the AWS variables of the environment."""
    return environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")


def known_catalogs(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Names of all catalogs that have properties."""
    directory, config = environment.get(CATALOGS_VARIABLE), Config()
    mounted = mounted_catalogs(Path(directory)) if directory else {}
    others = (
        name
        for name, properties in application_catalogs(environment).items()
        if isinstance(properties, dict) and not config.get_catalog_config(name)
    )
    return [*dict.fromkeys((*config.get_known_catalogs(), *mounted, *others))]


def open_catalog(name: str) -> Catalog:
    """Opens a catalog.

    Raises:
        ValueError: a property is missing or malformed. Servers and libraries raise other errors.
    """
    properties = catalog_properties(name)
    kind = _type_of(name, properties)
    _check_required_catalog_properties(name, kind, properties)
    if kind is CatalogType.REST:
        return _RestCatalog(name, **properties)
    if kind is CatalogType.SQL:
        properties["uri"] = _database(str(properties["uri"]))
    catalog = AVAILABLE_CATALOGS[kind](name, properties)
    _leave_tables_out(catalog)
    return catalog


class _RestCatalog(RestCatalog):
    """Does not accept a server's answers as configuration without checks."""

    def _fetch_config(self) -> None:
        own = dict(self.properties)
        super()._fetch_config()
        answered, self.properties = self.properties, with_answer(own, self.properties)
        self.uri = self.properties["uri"]
        # With "refs" a table seems to have no history, and what only its snapshots refer to would
        # seem to be unused.
        self.properties["snapshot-loading-mode"] = "all"
        if left := sorted(set(answered) - set(self.properties)):
            _LOG.info("catalog %s: ignoring its server's properties %s", self.name, ", ".join(left))

    def _response_to_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> Table:
        location = table_response.metadata_location
        credentials = self._resolve_storage_credentials(
            table_response.storage_credentials, location
        )
        sent = from_server({**table_response.config, **credentials})
        return Table(
            identifier=identifier_tuple,
            metadata=table_response.metadata,
            metadata_location=location,  # type: ignore[arg-type]
            io=self._load_file_io(sent, location),
            catalog=self,
            config=sent,
        )


def _type_of(name: str, properties: Mapping[str, Any]) -> CatalogType:
    named = properties.get("type")
    if isinstance(named, str) and named:
        return CatalogType(named.lower())
    kind = infer_catalog_type(name, dict(properties))
    if kind is None:
        raise ValueError(f"the type of catalog {name} is unknown")
    return kind


def _database(uri: str) -> str:
    """The URI that a database is opened with. It names psycopg2 if it names no driver, because
    SQLAlchemy's default differs between versions.
    """
    from sqlalchemy.engine import make_url

    url = make_url(uri)
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg2")
    if url.drivername == "postgresql+psycopg2":
        bound_statements()
    return url.render_as_string(hide_password=False)


def _leave_tables_out(catalog: Catalog) -> None:
    """Ignores properties of tables. A person who may write to a table must not decide where
    credentials for it are sent.
    """

    def load(properties: Mapping[str, Any] | None = None, location: str | None = None) -> FileIO:
        return load_file_io(catalog.properties, location)

    catalog._load_file_io = load  # type: ignore[method-assign]


def _location_provider(
    location_provider_impl: str, table_location: str, table_properties: dict[str, Any]
) -> LocationProvider | None:
    """Makes PyIceberg call nothing else that the property of a table names, such as
    ``subprocess.Popen``.
    """
    module, _, attribute = location_provider_impl.rpartition(".")
    try:
        found = getattr(import_module(module), attribute) if module else LocationProvider
    except (ImportError, AttributeError):
        found = LocationProvider  # PyIceberg reports that itself
    if not (isinstance(found, type) and issubclass(found, LocationProvider)):
        name = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
        raise ValueError(
            f"{name} is {location_provider_impl}, which is not a subclass of LocationProvider"
        )
    return _import_location_provider(location_provider_impl, table_location, table_properties)


pyiceberg.table.locations._import_location_provider = _location_provider
