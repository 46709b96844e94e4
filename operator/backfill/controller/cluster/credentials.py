"""Credentials for the operator's own jobs: the properties
of catalogs in the Secrets that the spec names.
"""

import base64
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from backfill.api.backfill import Backfill
from backfill.api.catalog_properties import GivenCatalog, mounted_catalogs
from backfill.api.errors import BadInput, Problem
from backfill.api.spec import BackfillSpec
from backfill.kube.client import Cluster
from backfill.kube.request_errors import Forbidden
from backfill.kube.resources import SECRET

_ONLY: Final = "its keys are the PyIceberg properties of one catalog, such as uri, and nothing else"
_MOST_BYTES: Final = 64 * 1024
_MOST_LINES: Final = 1000
"""Most lines of a Secret.
A catalog needs a few kilobytes, and messages are searched for every line.
"""


def catalog_credentials(cluster: Cluster, backfill: Backfill) -> dict[str, GivenCatalog]:
    """All catalogs with a Secret, by name. They are passed to the process of one job, and not kept.

    Raises:
        BadInput: for each Secret that is missing, empty, not text, or may not be read.
        ClusterError: a request failed.
    """
    given: dict[str, GivenCatalog] = {}
    problems: list[Problem] = []
    for number, catalog in enumerate(backfill.spec.catalogs):
        if catalog.secret_ref is None:
            continue
        try:
            properties = _properties(cluster, backfill.metadata.namespace, catalog.secret_ref.name)
        except BadInput as error:
            field = f"spec.catalogs[{number}].secretRef"
            problems += [replace(problem, field=field) for problem in error.problems]
        else:
            given[catalog.name] = GivenCatalog(properties)
    if problems:
        raise BadInput(problems)
    return given


def with_own_catalogs(
    spec: BackfillSpec, given: Mapping[str, GivenCatalog], directory: Path
) -> dict[str, GivenCatalog]:
    """The catalogs that a Backfill's jobs may open: those with a Secret, and those of the operator
    that the spec uses.

    The two are never mixed within a catalog: a server that the Backfill names must not receive the
    operator's password. The operator's own properties are in ``directory``, in PyIceberg's
    configuration, or in both.
    """
    theirs = {name.lower() for name in given}
    mounted = {name.lower(): catalog for name, catalog in mounted_catalogs(directory).items()}
    tables = (
        *(source.table for source in spec.sources),
        *(static.table for static in spec.static_tables),
        *(output.table for output in spec.outputs),
        *(output.reference.table for output in spec.outputs if output.reference),
    )
    used = {spec.workspace_catalog, *(table.partition(".")[0] for table in tables)}
    own = {name for name in used if name.lower() not in theirs}
    return {
        **{name: mounted.get(name.lower(), GivenCatalog({}, own=True)) for name in sorted(own)},
        **given,
    }


def _properties(cluster: Cluster, namespace: str, name: str) -> dict[str, str]:
    where = f"Secret {name} in namespace {namespace}"
    try:
        secret = cluster.get(SECRET, namespace, name)
    except Forbidden:
        fix = "allow the operator to get Secrets there, or set planning.runIn: Pod"
        raise BadInput(
            Problem("", f"the operator may not read {where}", fix, may_pass=True)
        ) from None
    if secret is None:
        raise BadInput(
            Problem(
                "",
                f"there is no {where}",
                "create it; its keys are PyIceberg properties, such as uri",
                may_pass=True,
            )
        )
    data = secret.get("data") or {}
    if not data:
        raise BadInput(
            Problem("", f"{where} is empty", "its keys are PyIceberg properties, such as uri")
        )
    if sum(map(len, data.values())) > _MOST_BYTES * 4 // 3:
        raise BadInput(Problem("", f"{where} has more than {_MOST_BYTES // 1024} KiB", _ONLY))
    try:
        properties = {
            key: base64.b64decode(value).decode().removesuffix("\n") for key, value in data.items()
        }
    except UnicodeDecodeError:
        raise BadInput(
            Problem(
                "", f"a value in {where} is not text", "PyIceberg's properties are text in UTF-8"
            )
        ) from None
    if sum(len(value.splitlines()) for value in properties.values()) > _MOST_LINES:
        raise BadInput(Problem("", f"{where} has more than {_MOST_LINES:,} lines", _ONLY))
    return properties
