"""Catalogs that an application's Spark properties configure, as PyIceberg's properties.

Sources: Iceberg's pages on the configuration of Spark and of AWS, Hadoop's on S3A, and the names
that PyIceberg 0.12 reads.
"""

import json
import os
import re
from collections.abc import Container, Mapping, MutableMapping
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from backfill.api.catalog_properties import APPLICATION_CATALOGS_VARIABLE

_CATALOG: Final = re.compile(r"spark\.sql\.catalog\.([^.]+)")
_CLASSES: Final = tuple(
    f"org.apache.iceberg.spark.{name}" for name in ("SparkCatalog", "SparkSessionCatalog")
)
_IMPLEMENTATIONS: Final[Mapping[str, str]] = {
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.jdbc.JdbcCatalog": "jdbc",
}
"""Their types. PyIceberg has none of Iceberg's others, or one with other tables."""
_HADOOP_FILES: Final = "org.apache.iceberg.hadoop.HadoopFileIO"
_DEFAULT_FILES: Final[Mapping[str, str]] = {"hive": _HADOOP_FILES, "jdbc": _HADOOP_FILES}
"""By type, how files are opened without ``io-impl``. The other types open S3 without Hadoop."""
_SAME: Final = frozenset(
    {
        *("uri", "warehouse", "prefix"),
        *("credential", "token", "oauth2-server-uri", "scope", "audience", "resource"),
        *("rest.sigv4-enabled", "rest.signing-name", "rest.signing-region"),
        *("glue.id", "glue.endpoint", "glue.skip-archive"),
        *("client.region", "s3.region", "s3.endpoint"),
        *("s3.access-key-id", "s3.secret-access-key", "s3.session-token"),
        *("gcs.project-id", "gcs.oauth2.token", "gcs.oauth2.token-expires-at", "gcs.service.host"),
    }
)
_SAME_PREFIXES: Final = ("header.", "adls.sas-token.")
_RENAMED: Final[Mapping[str, str]] = {
    "client.assume-role.region": "client.region",
    "client.assume-role.arn": "client.role-arn",
    "client.assume-role.session-name": "client.role-session-name",
    "adls.auth.shared-key.account.name": "adls.account-name",
    "adls.auth.shared-key.account.key": "adls.account-key",
}
_S3A: Final[Mapping[str, str]] = {
    "endpoint": "s3.endpoint",
    "endpoint.region": "s3.region",
    "access.key": "s3.access-key-id",
    "secret.key": "s3.secret-access-key",
    "session.token": "s3.session-token",
    "path.style.access": "s3.path-style-access",
}
_AWS_ENDPOINT: Final = re.compile(r"(?:https?://)?s3(?:[.-]([a-z0-9-]+))?\.amazonaws\.com/?")
_DELEGATION: Final = "header.X-Iceberg-Access-Delegation"
_SQLITE: Final = re.compile(r"jdbc:sqlite:(?:file:)?([^:?]+)")
_POSTGRES: Final = re.compile(r"jdbc:postgresql://([^@/?,]+/[^/?]+)\??(.*)")
_LIBPQ: Final[tuple[str, ...]] = ("sslmode", "sslrootcert")
"""Parameters that PostgreSQL's drivers for Java and for Python have in common."""


class _NotTranslated(Exception):  # noqa: N818
    """``str()`` says why."""


def spark_catalogs(conf: Mapping[str, str]) -> dict[str, dict[str, str] | str]:
    """The catalogs of an application by name: their properties for PyIceberg, or why it cannot
    open them. What has no counterpart in PyIceberg is left out.

    ``conf`` are the application's Spark properties, with Hadoop's as ``spark.hadoop.…``.
    """
    return {
        place[1]: _translated(place[1], given.strip(), conf)
        for key, given in conf.items()
        if (place := _CATALOG.fullmatch(key))
    }


def catalogs_variable(conf: Mapping[str, str], others: Container[str] = ()) -> dict[str, str]:
    """The environment variable with an application's catalogs, but without the ``others``; none if
    there are no catalogs.
    """
    found = {name: each for name, each in spark_catalogs(conf).items() if name not in others}
    return {APPLICATION_CATALOGS_VARIABLE: json.dumps(found)} if found else {}


def open_catalogs_of(
    conf: Mapping[str, str], environment: MutableMapping[str, str] = os.environ
) -> None:
    """Lets this process, and those that it starts, open the catalogs of an application."""
    environment.pop(APPLICATION_CATALOGS_VARIABLE, None)
    environment.update(catalogs_variable(conf))


def _translated(name: str, given: str, conf: Mapping[str, str]) -> dict[str, str] | str:
    key = f"spark.sql.catalog.{name}"
    try:
        if given not in _CLASSES:
            raise _NotTranslated(f" is {given}, which is not Iceberg's {_CLASSES[0]}")
        return _properties(_below(f"{key}.", conf), conf)
    except _NotTranslated as why:
        return f"{key}{why}"


def _below(prefix: str, conf: Mapping[str, str]) -> dict[str, str]:
    return {
        key.removeprefix(prefix): value.strip()
        for key, value in conf.items()
        if key.startswith(prefix)
    }


def _properties(options: dict[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    named = options.get("catalog-impl")
    kind = _IMPLEMENTATIONS.get(named) if named else options.get("type", "hive").lower()
    if options.get("io-impl", _DEFAULT_FILES.get(kind or "")) == _HADOOP_FILES:
        options |= _of_s3a(_below("spark.hadoop.fs.s3a.", conf) | _below("hadoop.fs.s3a.", options))
    found = {
        name: value
        for name, value in options.items()
        if name in _SAME or name.startswith(_SAME_PREFIXES)
    }
    found |= {_RENAMED[name]: value for name, value in options.items() if name in _RENAMED}
    if options.get("s3.path-style-access") == "false":
        found["s3.force-virtual-addressing"] = "true"
    match kind:
        case "rest":
            return {"type": "rest", **found, **_of_rest(options)}
        case "hive":
            return {"type": "hive", **found, "uri": _metastore(options, conf)}
        case "glue":
            if role := found.get("client.role-arn"):
                why = "a role that PyIceberg does not assume for Glue"
                raise _NotTranslated(f".client.assume-role.arn is {role}, {why}")
            return {"type": "glue", **found}
        case "jdbc":
            # tables of a catalog are created by the program that the database belongs to
            more = {"uri": _database(options), "init_catalog_tables": "false"}
            return {"type": "sql", **found, **more}
    key = "catalog-impl" if named else "type"
    raise _NotTranslated(f".{key} is {named or kind}, which PyIceberg cannot open")


def _of_s3a(given: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's properties of S3, with Iceberg's names."""
    found = {_S3A[name]: value for name, value in given.items() if name in _S3A}
    endpoint = found.get("s3.endpoint", "")
    if at_aws := _AWS_ENDPOINT.fullmatch(endpoint):
        del found["s3.endpoint"]
        return ({"s3.region": at_aws[1]} if at_aws[1] else {}) | found
    if endpoint and "://" not in endpoint:
        scheme = "http" if given.get("connection.ssl.enabled") == "false" else "https"
        found["s3.endpoint"] = f"{scheme}://{endpoint}"
    return found


def _of_rest(options: Mapping[str, str]) -> dict[str, str]:
    if "uri" not in options:
        raise _NotTranslated(".uri is missing")
    found = {}
    match options.get("rest.auth.type", "oauth2"):
        case "sigv4":
            found["rest.sigv4-enabled"] = "true"
        case "oauth2" | "none":
            pass
        case other:
            raise _NotTranslated(f".rest.auth.type is {other}, which is not supported")
    if "s3.access-key-id" in options and _DELEGATION not in options:
        # PyIceberg asks for credentials unless this header is set, and servers that have none to
        # give refuse that
        found[_DELEGATION] = ""
    return found


def _metastore(options: Mapping[str, str], conf: Mapping[str, str]) -> str:
    by_default = (conf.get(f"spark.{each}hive.metastore.uris") for each in ("hadoop.", ""))
    for uri in (options.get("uri"), *by_default):
        if uri:
            return uri
    raise _NotTranslated(".uri is missing, and so is spark.hadoop.hive.metastore.uris")


def _database(options: Mapping[str, str]) -> str:
    """The URI of a JDBC catalog's database for SQLAlchemy. Java and PyIceberg have the same tables
    there, also in the schema without ``iceberg_type``.
    """
    given = options.get("uri", "")
    if sqlite := _SQLITE.fullmatch(given):
        return f"sqlite:///{sqlite[1]}"
    postgres = _POSTGRES.fullmatch(given)
    if postgres is None:
        supported = "jdbc:postgresql://HOST/DATABASE or jdbc:sqlite:FILE"
        raise _NotTranslated(f".uri is not of the form {supported}")
    parameters = _below("jdbc.", options) | dict(parse_qsl(postgres[2]))
    login = ":".join(
        quote(parameters[key], safe="") for key in ("user", "password") if parameters.get(key)
    )
    query = {key: parameters[key] for key in _LIBPQ if key in parameters}
    if parameters.get("ssl") == "true":
        query.setdefault("sslmode", "verify-full")
    if schema := parameters.get("currentSchema"):
        query["options"] = f"-csearch_path={schema}"
    at = f"{login}@" if login else ""
    more = f"?{urlencode(query, quote_via=quote)}" if query else ""
    return f"postgresql+psycopg2://{at}{postgres[1]}{more}"
