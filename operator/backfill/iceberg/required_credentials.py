"""Credentials that a catalog and its files need if the identity of this process must not be used.

Pure.

A client without credentials looks for those of the process: environment variables, ``~/.aws``, a
token of a workload identity, the instance metadata service. For a catalog that somebody else names,
the given credentials must be complete, so that no client looks for others.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyiceberg.types import strtobool

OWN: Final = "backfill.operators-own"
"""Property of catalogs whose files may be opened with the identity of this process. It is on no
list of properties that others may set.
"""

S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3n", "oss"})
_GCS: Final = frozenset({"gs", "gcs"})
_AZURE: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
_AZURE_SECRET: Final = ("adls.tenant-id", "adls.client-id", "adls.client-secret")
_KEYS: Final = {"access-key-id": "secret-access-key"}


def needed_for_catalog(kind: str, properties: Mapping[str, Any]) -> str | None:
    """The properties that a catalog's client lacks, in words;
    None if it uses no identity except the given one.

    Args:
        kind: ``rest``, ``glue``, ``dynamodb`` or another type of PyIceberg's.
        properties: its own, and for ``rest`` also those that its server has added.
    """
    if kind in ("glue", "dynamodb"):
        return None if _has_keys(properties, kind, "client") else _keys_of(kind)
    if kind == "rest" and _is_true(properties.get("rest.sigv4-enabled")):
        return None if _has_keys(properties, "client") else _keys_of("client")
    return None


def needed_for_files(scheme: str, properties: Mapping[str, Any], *, arrow: bool) -> str | None:
    """The properties that a file system's client lacks, in words; None if it uses no identity
    except the given one.

    Args:
        scheme: of the files' locations.
        properties: all properties that the client is made with.
        arrow: whether it is PyArrow's client, which supports fewer kinds of credentials than
            fsspec's.
    """
    if scheme in S3_SCHEMES:
        if properties.get("s3.role-arn") or properties.get("client.role-arn"):
            return f"{_keys_of('s3')} (not a role, which the operator's identity would assume)"
        anonymous = _is_true(properties.get("s3.anonymous"))
        signed = not arrow and bool(properties.get("s3.signer"))
        return (
            None
            if anonymous or signed or _has_keys(properties, "s3", "client")
            else f"{_keys_of('s3')}, or s3.anonymous: true"
        )
    if scheme in _GCS:
        token = (
            ("gcs.oauth2.token", "gcs.oauth2.token-expires-at") if arrow else ("gcs.oauth2.token",)
        )
        return None if all(map(properties.get, token)) else _either((token,))
    if scheme in _AZURE:
        logins = tuple(_azure_logins(properties, arrow=arrow))
        return None if any(all(map(properties.get, login)) for login in logins) else _either(logins)
    return None


def _azure_logins(properties: Mapping[str, Any], *, arrow: bool) -> Iterator[tuple[str, ...]]:
    yield from (("adls.account-key",), ("adls.sas-token",), _AZURE_SECRET)
    if not arrow:
        yield from (("adls.token",), ("adls.credential",))
        yield from ((name,) for name in properties if name.startswith("adls.sas-token."))
        if "AccountKey=" in str(properties.get("adls.connection-string")):
            yield ("adls.connection-string",)


def _has_keys(properties: Mapping[str, Any], *prefixes: str) -> bool:
    """Whether access keys are given. As in PyIceberg, each is looked up by itself, and the first
    that is not empty counts.
    """
    return all(
        any(properties.get(f"{prefix}.{name}") for prefix in prefixes)
        for pair in _KEYS.items()
        for name in pair
    )


def _keys_of(prefix: str) -> str:
    return " and ".join(f"{prefix}.{name}" for pair in _KEYS.items() for name in pair)


def _either(logins: tuple[tuple[str, ...], ...]) -> str:
    return ", or ".join(" and ".join(login) for login in logins)


def _is_true(value: Any) -> bool:
    try:
        return bool(value) and strtobool(str(value))
    except ValueError:
        return False
