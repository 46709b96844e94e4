"""Properties of a catalog that may come from somebody who is not trusted. Pure.

There are two such sources: the Secret of another team, for jobs in the operator; and the server of
a catalog, which may answer with properties, for all who open the catalog. What PyIceberg does with
a property that is not listed here is unknown: it may import code, read a file of this process, or
send requests and credentials elsewhere.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

FILE_IOS: Final = frozenset(
    {"pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO"}
)
RETRY_STRATEGIES: Final = frozenset(
    {"pyarrow.fs.AwsDefaultS3RetryStrategy", "pyarrow.fs.AwsStandardS3RetryStrategy"}
)

_STORE_NAMES = frozenset(
    {
        *(
            f"{prefix}.{name}"
            for prefix in ("s3", "client")
            for name in ("region", "role-arn", "role-session-name")
        ),
        *(
            f"{prefix}.{name}"
            for prefix in ("s3", "client")
            for name in ("access-key-id", "secret-access-key", "session-token")
        ),
        *(
            "s3.anonymous",
            "s3.endpoint",
            "s3.resolve-region",
            "s3.connect-timeout",
            "s3.request-timeout",
        ),
        *(
            "s3.force-virtual-addressing",
            "s3.retry-strategy-impl",
            "s3.server-side-encryption",
            "s3.sse-kms-key-id",
        ),
        *("s3.signer", "s3.signer.uri", "s3.signer.endpoint", "s3.remote-signing-enabled"),
        *(
            "gcs.oauth2.token",
            "gcs.oauth2.token-expires-at",
            "gcs.project-id",
            "gcs.access",
            "gcs.consistency",
        ),
        *(
            "gcs.cache-timeout",
            "gcs.requester-pays",
            "gcs.service.host",
            "gcs.default-bucket-location",
            "gcs.version-aware",
        ),
        *(
            "adls.connection-string",
            "adls.credential",
            "adls.account-name",
            "adls.account-key",
            "adls.sas-token",
            "adls.token",
        ),
        *(
            "adls.tenant-id",
            "adls.client-id",
            "adls.client-secret",
            "adls.account-host",
            "adls.anon",
        ),
        *("adls.blob-storage-authority", "adls.dfs-storage-authority"),
        *("adls.blob-storage-scheme", "adls.dfs-storage-scheme"),
        *("py-io-impl", "buffer-size"),
    }
)
_SERVERS: Final = (
    *(
        "uri",
        "oauth2-server-uri",
        "s3.endpoint",
        "s3.signer.uri",
        "gcs.service.host",
        "glue.endpoint",
    ),
    *("adls.account-host", "adls.blob-storage-authority", "adls.dfs-storage-authority"),
)
"""Properties that name servers."""
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_HOST_PARTS: Final = (
    *(
        "s3.region",
        "client.region",
        "glue.region",
        "dynamodb.region",
        "rest.signing-region",
        "rest.signing-name",
    ),
    "adls.account-name",
)
"""Properties that clients use as a part of a server's name."""
_SAS_TOKEN = "adls.sas-token."
"""Prefix of the property with the token for a storage account."""
_SENT_NAMES = _STORE_NAMES | {
    *(
        "uri",
        "warehouse",
        "prefix",
        "token",
        "namespace-separator",
        "oauth2-server-uri",
        "scope",
        "audience",
        "resource",
    ),
    *("rest-page-size", "view-endpoints-supported", "scan-planning-mode", "snapshot-loading-mode"),
    *("rest.sigv4-enabled", "rest.signing-region", "rest.signing-name", "rest.sigv4.max-retries"),
}
"""Properties that a REST catalog's server may set."""
_GIVEN_NAMES = _SENT_NAMES | {
    *("type", "credential", "header.x-iceberg-access-delegation"),
    *(
        "pool_pre_ping",
        "pool-pre-ping",
        "init_catalog_tables",
        "init-catalog-tables",
        "schema_version",
        "schema-version",
    ),
    *(
        "ugi",
        "hive.hive2-compatible",
        "lock-check-min-wait-time",
        "lock-check-max-wait-time",
        "lock-check-retries",
    ),
    *(
        f"glue.{name}"
        for name in ("id", "endpoint", "region", "max-retries", "retry-mode", "skip-archive")
    ),
    *(
        f"{prefix}.{name}"
        for prefix in ("glue", "dynamodb")
        for name in ("access-key-id", "secret-access-key", "session-token")
    ),
    *("dynamodb.region", "table-name"),
}
_TYPES: Final = frozenset({"rest", "sql", "hive", "glue", "dynamodb"})
_NOT_REPLACED = frozenset({"uri", "oauth2-server-uri", "token", "s3.endpoint", "gcs.service.host"})
"""Where credentials are sent.
If the catalog's own properties say so, its server cannot change that.
"""
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9.])?|[0-9A-Fa-f:.]+")
_DATABASES = ("sqlite", "postgresql")
"""Prefixes of a ``uri`` by which PyIceberg recognises a catalog in a database."""
_POSTGRESQL = re.compile(r"postgresql(\+psycopg2)?")
_POSTGRESQL_OPTIONS = frozenset(
    {
        *(
            "sslmode",
            "sslrootcert",
            "ssl_min_protocol_version",
            "sslnegotiation",
            "channel_binding",
            "gssencmode",
            "require_auth",
        ),
        *(
            "connect_timeout",
            "application_name",
            "options",
            "target_session_attrs",
            "load_balance_hosts",
            "client_encoding",
        ),
        *(
            "keepalives",
            "keepalives_idle",
            "keepalives_interval",
            "keepalives_count",
            "tcp_user_timeout",
            "host",
            "port",
        ),
    }
)
"""Parameters of a connection that name no file of this process and load nothing."""
_BEARER_TARGETS = {
    "gcs.service.host": (("gcs.oauth2.token",),),
    "adls.account-host": (
        ("adls.account-key",),
        ("adls.sas-token",),
        ("adls.token",),
        ("adls.client-secret",),
    ),
    "adls.blob-storage-authority": (
        ("adls.account-key",),
        ("adls.sas-token",),
        ("adls.client-secret",),
    ),
    "adls.dfs-storage-authority": (
        ("adls.account-key",),
        ("adls.sas-token",),
        ("adls.client-secret",),
    ),
}
"""Servers to which a process would send the token of its own identity, unless one of these
credentials is given.
"""


@dataclass(frozen=True, slots=True)
class RefusedProperty:
    """A property that is not allowed from this source."""

    name: str
    why: str


def refused(properties: Mapping[str, str]) -> list[RefusedProperty]:
    """The properties of a Secret because of which a job in the operator does not open a catalog."""
    unknown = (
        RefusedProperty(name, "is not accepted by jobs in the operator")
        for name in properties
        if not _listed(name, _GIVEN_NAMES)
    )
    return [*unknown, *_wrong_values(properties)]


def sent_by_server(own: Mapping[str, Any], answered: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a catalog after its server has answered.

    Args:
        own: the catalog's own properties.
        answered: those, with the defaults and overrides of its server.
    """
    sent = {
        name: value for name, value in answered.items() if name not in own or own[name] != value
    }
    kept = {
        name: value for name, value in sent.items() if not (name in own and name in _NOT_REPLACED)
    }
    return {**own, **from_server(kept)}


def from_server(sent: Mapping[str, Any]) -> dict[str, str]:
    """The properties that are accepted from a catalog's server: known names with plain values."""
    return {
        name: str(value)
        for name, value in sent.items()
        if _listed(name, _SENT_NAMES) and isinstance(value, str | int | float | bool)
    }


def store_problems(properties: Mapping[str, Any]) -> list[RefusedProperty]:
    """Problems of the properties that files are opened with, because they would give away the
    identity or files of this process.
    """
    return list(
        _store_problems(
            {name: str(value) for name, value in properties.items() if value is not None}
        )
    )


def named_servers(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The servers that properties name, each with the name of the property.

    Those of databases are not included.
    """
    for name in _SERVERS:
        text = str(properties.get(name) or "")
        if name == "uri" and not text.lower().startswith(("http", "thrift")):
            continue
        if text.startswith("."):
            text = f"{properties.get('adls.account-name', '')}{text}"
        yield from (
            (name, each)
            for each in (text.split(",") if text.startswith("thrift") else (text,))
            if each
        )


def _listed(name: str, names: frozenset[str]) -> bool:
    """Whether a name is listed.

    Names are case-sensitive, as in PyIceberg, except those of headers.
    """
    return (name.lower() if name.startswith("header.") else name) in names or name.startswith(
        _SAS_TOKEN
    )


def _wrong_values(properties: Mapping[str, str]) -> Iterator[RefusedProperty]:
    kind, uri = properties.get("type", "").lower(), properties.get("uri", "")
    if kind and kind not in _TYPES:
        yield RefusedProperty("type", f"must be one of {', '.join(sorted(_TYPES))} in the operator")
    if (kind == "sql" or (not kind and uri.startswith(_DATABASES))) and (
        why := _wrong_database(uri)
    ):
        yield RefusedProperty("uri", why)
    yield from _store_problems(properties)


def _store_problems(properties: Mapping[str, str]) -> Iterator[RefusedProperty]:
    for name in _HOST_PARTS:
        if (part := properties.get(name)) and not _LABEL.fullmatch(part):
            yield RefusedProperty(name, "must consist of letters, digits and hyphens")
    for name, allowed in (("py-io-impl", FILE_IOS), ("s3.retry-strategy-impl", RETRY_STRATEGIES)):
        if properties.get(name, next(iter(allowed))) not in allowed:
            yield RefusedProperty(
                name,
                f"refers to code that is not loaded here; allowed: {' or '.join(sorted(allowed))}",
            )
    token = properties.get("gcs.oauth2.token", "")
    if "/" in token or token in ("google_default", "cloud", "browser", "cache"):
        yield RefusedProperty(
            "gcs.oauth2.token", "must be an access token, not a file or a way to find one"
        )
    for name, credentials in _BEARER_TARGETS.items():
        if properties.get(name) and not any(
            all(map(properties.get, needed)) for needed in credentials
        ):
            needed = " or ".join(" and ".join(names) for names in credentials)
            yield RefusedProperty(
                name,
                "refers to a server that would receive the token of this process's own"
                f" identity; set {needed} as well",
            )


def _wrong_database(uri: str) -> str | None:
    """Problem of a database's URI. Drivers read files and load code that URIs name, so only what is
    known to be harmless is accepted.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        # parsed in the same way as when it is opened; another parser could see something else
        url = make_url(uri)
    except (ArgumentError, ValueError):
        return None  # it opens nothing
    if url.drivername == "sqlite":
        # the location of the file is checked when it is opened
        return "must not have parameters" if url.query else None
    if not _POSTGRESQL.fullmatch(url.drivername):
        return "must begin with postgresql:// or postgresql+psycopg2://"
    wrong = sorted(set(url.query) - _POSTGRESQL_OPTIONS)
    if wrong:
        return f"must not have the parameter {' or '.join(wrong)}"
    if any(value != "system" for value in _parameter(url, "sslrootcert")):
        return "must not name a file in sslrootcert; only sslrootcert=system is accepted"
    hosts = hosts_of_database(url)
    if not hosts or not all(map(_HOST.fullmatch, hosts)):
        return "must contain a host"
    return None


def hosts_of_database(url: "URL") -> list[str]:
    """The servers that a database's URI names, without ports."""
    texts = (url.host or "", *_parameter(url, "host"))
    return [
        each.partition(":")[0] if each.count(":") == 1 else each
        for text in texts
        for each in text.split(",")
        if text
    ]


def _parameter(url: "URL", name: str) -> tuple[str, ...]:
    value = url.query.get(name, ())
    return (value,) if isinstance(value, str) else tuple(value)
