"""Opens catalogs, for all processes: the operator's jobs, pods, drivers and runs on one machine.

In all of them, code that a property names is loaded only if it is of the right kind
(:mod:`.import_points`), only known properties are accepted from a catalog's server, and the
properties of a table do not determine how its files are opened. A process that works for others
(:func:`work_for_others`) accepts only listed properties.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import (
    AVAILABLE_CATALOGS,
    Catalog,
    CatalogType,
    _check_required_catalog_properties,
    infer_catalog_type,
)
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table
from pyiceberg.utils.config import Config
from requests import Session

from backfill.api.catalog_properties import CATALOGS_VARIABLE, GivenCatalog, mounted_properties
from backfill.iceberg.allowed_addresses import Network
from backfill.iceberg.allowed_local_files import OutOfReach, limit, limited, require_local
from backfill.iceberg.answer_limits import bound_answers, bound_statements
from backfill.iceberg.confinement import confine_file_io
from backfill.iceberg.connection_checks import require_host, require_server, watch_connections
from backfill.iceberg.import_points import close_import_points, only_registered
from backfill.iceberg.required_credentials import OWN, needed_for_catalog
from backfill.iceberg.untrusted_properties import (
    from_server,
    hosts_of_database,
    named_servers,
    refused,
    sent_by_server,
)

_LOG = logging.getLogger(__name__)

close_import_points()


@dataclass
class _Given:
    """What this process was given."""

    catalogs: Mapping[str, GivenCatalog] | None = None
    """Catalogs by name in lower case; None if the process looks for them itself."""
    in_time: bool = False
    """Whether the process runs jobs, and servers must answer in time."""


_GIVEN = _Given()


def work_for_others(
    catalogs: Mapping[str, GivenCatalog],
    directories: tuple[Path, ...],
    allowed: tuple[Network, ...] = (),
    refused_hosts: tuple[str, ...] = (),
) -> None:
    """Makes this process, permanently, open catalogs for somebody who is not trusted.

    Args:
        catalogs: properties of catalogs by name. Only those of this process's own may have more
            properties in PyIceberg's configuration, and their files may be opened with the identity
            of this process.
        directories: directories of this machine that may hold tables and workspaces.
        allowed: addresses that may be connected to although only the operator should reach them.
        refused_hosts: servers that only the operator may use.
    """
    _GIVEN.catalogs = {name.lower(): given for name, given in catalogs.items()}
    only_registered()
    confine_file_io()
    limit(directories)
    own = [name for name, each in catalogs.items() if each.own]
    watch_connections(allowed, refused_hosts, [catalog_properties(name) for name in own])
    work_in_time()


def work_in_time() -> None:
    """Makes this process, permanently, limit how long it waits for servers,
    because it does nothing but run jobs.
    """
    _GIVEN.in_time = True
    bound_answers()


def catalog_properties(name: str, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The properties of a catalog, wherever this process has them;
    empty if the catalog is unknown.
    """
    given = _given(name)
    if given is not None and not given.own:
        return dict(given.properties)
    known: dict[str, Any] = {**(Config().get_catalog_config(name) or {})}
    if directory := environment.get(CATALOGS_VARIABLE):
        known |= mounted_properties(Path(directory), name)
    return known | {**given.properties, OWN: "true"} if given is not None else known


def _given(name: str) -> GivenCatalog | None:
    """A catalog that this process was given. A process that works for others has no other
    properties, and none of its own.
    """
    if _GIVEN.catalogs is None:
        return None
    return _GIVEN.catalogs.get(name.lower(), GivenCatalog({}))


def open_catalog(name: str) -> Catalog:
    """Opens a catalog.

    Raises:
        ValueError: a property is missing, malformed or not allowed here. Servers and libraries
            raise other errors.
    """
    properties = catalog_properties(name)
    given = _given(name)
    if given is not None and not given.own:
        for wrong in refused(given.properties):
            raise OutOfReach(
                f"its property {wrong.name} {wrong.why}; correct it, or set planning.runIn: Pod"
            )
        for property_name, server in named_servers(given.properties):
            require_server(property_name, server)
    kind = _type_of(name, properties)
    _require_login(kind, properties)
    _check_required_catalog_properties(name, kind, properties)
    if kind is CatalogType.SQL:
        properties["uri"] = _database(
            str(properties["uri"]), theirs=limited() and OWN not in properties
        )
    catalog = (
        _RestCatalog(name, **properties)
        if kind is CatalogType.REST
        else AVAILABLE_CATALOGS[kind](name, properties)
    )
    if kind is not CatalogType.REST:
        _leave_tables_out(catalog)
    return catalog


class _RestCatalog(RestCatalog):
    """Does not accept a server's answers as configuration without checks."""

    def _fetch_config(self) -> None:
        own = dict(self.properties)
        super()._fetch_config()
        answered, self.properties = self.properties, sent_by_server(own, self.properties)
        self.uri = self.properties["uri"]
        # With "refs" a table seems to have no history, and what only its snapshots refer to would
        # seem to be unused.
        self.properties["snapshot-loading-mode"] = "all"
        if left := sorted(set(answered) - set(self.properties)):
            _LOG.info("catalog %s: ignoring its server's properties %s", self.name, ", ".join(left))

    def _init_sigv4(self, session: Session) -> None:
        _require_login(CatalogType.REST, self.properties)
        super()._init_sigv4(session)

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


def _require_login(kind: CatalogType, properties: Mapping[str, Any]) -> None:
    if (
        limited()
        and OWN not in properties
        and (needed := needed_for_catalog(kind.value, properties))
    ):
        raise OutOfReach(
            "the operator's own identity is not used for a catalog that a Backfill refers to: add"
            f" {needed} to its Secret, or set planning.runIn: Pod"
        )


def _type_of(name: str, properties: Mapping[str, Any]) -> CatalogType:
    named = properties.get("type")
    if isinstance(named, str) and named:
        return CatalogType(named.lower())
    kind = infer_catalog_type(name, dict(properties))
    if kind is None:
        raise ValueError(f"the type of catalog {name} is unknown")
    return kind


def _database(uri: str, *, theirs: bool) -> str:
    """The URI that a database is opened with. It names psycopg2 if it names no driver, because
    SQLAlchemy's default differs between versions.
    """
    from sqlalchemy.engine import make_url

    url = make_url(uri)
    if url.drivername.startswith("sqlite") and url.database:
        require_local(url.database)
    for host in hosts_of_database(url) if theirs else ():
        require_host("property uri", host, url.port or 0)
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg2")
    if url.drivername == "postgresql+psycopg2" and _GIVEN.in_time:
        bound_statements()
    return url.render_as_string(hide_password=False)


def _leave_tables_out(catalog: Catalog) -> None:
    """Ignores properties of tables. A person who may write to a table must not decide where
    credentials for it are sent.
    """

    def load(properties: Mapping[str, Any] | None = None, location: str | None = None) -> FileIO:
        return load_file_io(catalog.properties, location)

    catalog._load_file_io = load  # type: ignore[method-assign]
