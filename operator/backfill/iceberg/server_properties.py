"""Properties that are accepted from the server of a catalog.

What PyIceberg does with other properties is unknown: it may import code, read a file of this
process, or send requests and credentials elsewhere.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

_ACCEPTED: Final = frozenset(
    {
        *(
            f"{prefix}.{name}"
            for prefix in ("s3", "client")
            for name in (
                *("region", "role-arn", "role-session-name"),
                *("access-key-id", "secret-access-key", "session-token"),
            )
        ),
        *("s3.anonymous", "s3.endpoint", "s3.resolve-region", "s3.force-virtual-addressing"),
        *("s3.connect-timeout", "s3.request-timeout"),
        *("s3.server-side-encryption", "s3.sse-kms-key-id"),
        *("s3.signer", "s3.signer.uri", "s3.signer.endpoint", "s3.remote-signing-enabled"),
        *("gcs.oauth2.token", "gcs.oauth2.token-expires-at", "gcs.project-id", "gcs.access"),
        *("gcs.consistency", "gcs.cache-timeout", "gcs.requester-pays", "gcs.version-aware"),
        "gcs.default-bucket-location",
        *("adls.connection-string", "adls.credential", "adls.account-name", "adls.account-key"),
        *("adls.sas-token", "adls.token", "adls.tenant-id", "adls.client-id"),
        *("adls.client-secret", "adls.anon"),
        *("py-io-impl", "buffer-size"),
        *("uri", "warehouse", "prefix", "token", "namespace-separator"),
        *("oauth2-server-uri", "scope", "audience", "resource"),
        *("rest-page-size", "view-endpoints-supported", "scan-planning-mode"),
        "snapshot-loading-mode",
        *("rest.sigv4-enabled", "rest.signing-region", "rest.signing-name"),
        "rest.sigv4.max-retries",
    }
)
"""They include no server of Google or Azure: the token of the catalog's own properties or of this
process's identity would be sent there.
"""
_SAS_TOKEN: Final = "adls.sas-token."
"""Prefix of the property with the token for a storage account."""
_VALUES: Final = {
    "py-io-impl": re.compile(r"pyiceberg\.io\.(pyarrow\.PyArrowFileIO|fsspec\.FsspecFileIO)"),
    "adls.account-name": re.compile(r"[a-z0-9]{3,24}"),
}
"""Values of properties that could name other code, or become the name of any server."""
_NOT_REPLACED: Final = frozenset({"uri", "oauth2-server-uri", "token", "s3.endpoint"})
"""Where credentials are sent.
If the catalog's own properties say so, its server cannot change that.
"""


def with_answer(own: Mapping[str, Any], answered: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a catalog after its server has answered.

    Args:
        own: the catalog's own properties.
        answered: those, with the defaults and overrides of its server.
    """
    sent = {
        name: value
        for name, value in answered.items()
        if name not in own or (own[name] != value and name not in _NOT_REPLACED)
    }
    return {**own, **from_server(sent)}


def from_server(sent: Mapping[str, Any]) -> dict[str, str]:
    """The properties that are accepted: known names with plain values."""
    return {
        name: str(value)
        for name, value in sent.items()
        if (name in _ACCEPTED or name.startswith(_SAS_TOKEN))
        and isinstance(value, str | int | float | bool)
        and (name not in _VALUES or _VALUES[name].fullmatch(str(value)))
    }
