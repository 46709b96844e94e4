"""Opens catalogs: the one place where it is done,
in the operator's jobs, in pods, in drivers and on a laptop.

Wherever it is, code that a property names is loaded only where it is of the right kind
(:mod:`import_points`), of what a catalog's server says of itself only known properties are taken,
and a table's own properties do not say how its files are opened. A process that works for others
(:func:`work_for_others`) takes no other properties than those on a list.
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

from backfill.api.catalogs import CATALOGS_VARIABLE, GivenCatalog, mounted_properties
from backfill.iceberg.addresses import Network
from backfill.iceberg.answers import bound_answers, bound_statements
from backfill.iceberg.confinement import confine_file_io
from backfill.iceberg.connections import require_host, require_server, watch_connections
from backfill.iceberg.identity import OWN, needed_for_catalog
from backfill.iceberg.import_points import close_import_points, only_registered
from backfill.iceberg.properties import (
    from_server,
    hosts_of_database,
    named_servers,
    refused,
    sent_by_server,
)
from backfill.iceberg.reach import OutOfReach, limit, limited, require_local

_LOG = logging.getLogger(__name__)

close_import_points()


@dataclass
class _Given:
    """What this process was told."""

    catalogs: Mapping[str, GivenCatalog] | None = None
    """By their names in lower case; None: it looks for catalogs itself."""
    in_time: bool = False
    """Whether it does jobs, and servers have to answer in time."""


_GIVEN = _Given()


def work_for_others(
    catalogs: Mapping[str, GivenCatalog],
    directories: tuple[Path, ...],
    allowed: tuple[Network, ...] = (),
    refused_hosts: tuple[str, ...] = (),
) -> None:
    """From now on, and for good, this process opens catalogs for somebody it does not trust.

    Args:
        catalogs: the properties of catalogs, by name. For those that are this process's own, and no
            others, there may be more in PyIceberg's configuration, and files may be opened with the
            identity that this process has.
        directories: where this machine's own files may be.
        allowed: addresses that may be connected to though they are the operator's surroundings.
        refused_hosts: servers that are the operator's alone.
    """
    _GIVEN.catalogs = {name.lower(): given for name, given in catalogs.items()}
    only_registered()
    confine_file_io()
    limit(directories)
    own = [name for name, each in catalogs.items() if each.own]
    watch_connections(allowed, refused_hosts, [catalog_properties(name) for name in own])
    work_in_time()


def work_in_time() -> None:
    """From now on, and for good, this process waits for no server without end: it does jobs, and
    nothing but jobs.
    """
    _GIVEN.in_time = True
    bound_answers()


def catalog_properties(name: str, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """A catalog's properties, from where this process has them;
    empty where nothing is known of it.
    """
    given = _given(name)
    if given is not None and not given.own:
        return dict(given.properties)
    known: dict[str, Any] = {**(Config().get_catalog_config(name) or {})}
    if directory := environment.get(CATALOGS_VARIABLE):
        known |= mounted_properties(Path(directory), name)
    return known | {**given.properties, OWN: "true"} if given is not None else known


def _given(name: str) -> GivenCatalog | None:
    """What this process was handed of a catalog. One that works for others has nothing else, nor
    anything of its own.
    """
    if _GIVEN.catalogs is None:
        return None
    return _GIVEN.catalogs.get(name.lower(), GivenCatalog({}))


def open_catalog(name: str) -> Catalog:
    """Opens a catalog.

    Raises:
        ValueError: a property is missing, malformed or not allowed here. Its server and libraries
            raise others.
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
    """A server's answers are not taken for configuration as they are."""

    def _fetch_config(self) -> None:
        own = dict(self.properties)
        super()._fetch_config()
        answered, self.properties = self.properties, sent_by_server(own, self.properties)
        self.uri = self.properties["uri"]
        # With "refs" a table seems to have no history: what only its snapshots refer to would seem
        # to be in nobody's use.
        self.properties["snapshot-loading-mode"] = "all"
        if left := sorted(set(answered) - set(self.properties)):
            _LOG.info(
                "catalog %s: its server's properties %s are left out", self.name, ", ".join(left)
            )

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
            "the operator's own identity is not used for a catalog that a Backfill names: "
            f"add {needed} to its Secret, or set planning.runIn: Pod"
        )


def _type_of(name: str, properties: Mapping[str, Any]) -> CatalogType:
    told = properties.get("type")
    if isinstance(told, str) and told:
        return CatalogType(told.lower())
    kind = infer_catalog_type(name, dict(properties))
    if kind is None:
        raise ValueError(f"the type of catalog {name} is not known")
    return kind


def _database(uri: str, *, theirs: bool) -> str:
    """A database's URI as it is opened: by psycopg2 where it names no driver, since SQLAlchemy's
    choice differs by version.
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
    """Whoever may write to a table must not decide where credentials for it are sent."""

    def load(properties: Mapping[str, Any] | None = None, location: str | None = None) -> FileIO:
        return load_file_io(catalog.properties, location)

    catalog._load_file_io = load  # type: ignore[method-assign]
