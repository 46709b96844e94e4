"""A team that leaves credentials out of its Secret, so that the operator's own identity would open
what the team names.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from refusals import refusals

from backfill.api.catalog_properties import GivenCatalog
from backfill.api.errors import BadInput
from backfill.controller.jobs.any_job import JobState
from backfill.controller.jobs.pool import JobPool
from backfill.controller.jobs.process import Confinement, _environment
from backfill.iceberg.required_credentials import needed_for_catalog, needed_for_files
from backfill.iceberg.untrusted_properties import refused
from cases import cases
from hostile_catalog import HostileCatalog, hostile_catalog
from hostile_server import HostileServer, answering, hostile_server
from table_jobs import LOOPBACK, Clicks, ended

pytestmark = pytest.mark.hostile

KEY = ("default", "january")
KEYS = {"s3.access-key-id": "AKIATEAM", "s3.secret-access-key": "of-the-team"}


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The operator has credentials of each kind."""
    token = tmp_path / "token"
    token.write_text("the workload's token")
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIAOPERATOR",
        "AWS_SECRET_ACCESS_KEY": "of-the-operator",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/operator",
        "AZURE_CLIENT_ID": "operator",
        "AZURE_TENANT_ID": "operator",
        "AZURE_CLIENT_SECRET": "of-the-operator",
        "GOOGLE_APPLICATION_CREDENTIALS": str(token),
        "PYICEBERG_CATALOG__OPERATORS__CREDENTIAL": "of-the-operator",
    }.items():
        monkeypatch.setenv(name, value)


def said(clicks: Clicks, properties: Mapping[str, str], workspace: str = "", **spec: Any) -> str:
    """What a plan job in the operator says of a catalog of a Secret."""
    state = planned(clicks, {"lake": properties}, workspace, **spec)
    assert isinstance(state.error, BadInput), state
    return str(state.error)


def planned(
    clicks: Clicks, catalogs: Mapping[str, Mapping[str, str]], workspace: str = "", **spec: Any
) -> JobState:
    """How a plan job in the operator ends that is given catalogs of Secrets."""
    given = {name: GivenCatalog(properties) for name, properties in catalogs.items()}
    pool = JobPool(lambda _key: given, directories=(clicks.directory,), addresses=LOOPBACK)
    try:
        runner = pool.runner(KEY, lambda: None)
        job = clicks.plan_job(workspace or "workspace", **spec)
        runner.start(job)
        return ended(runner, job)
    finally:
        pool.close()


def at_store(catalog: HostileCatalog, scheme: str) -> Mapping[str, str]:
    """The catalog's table is in an object store."""
    for snapshot in catalog.metadata["snapshots"]:
        snapshot["manifest-list"] = f"{scheme}://lake/list.avro"
    return catalog.properties


@pytest.mark.parametrize("by", ["Secret", "server"])
@pytest.mark.usefixtures("operators")
def test_a_store_whose_keys_a_secret_leaves_out_is_not_opened_with_the_operators(
    clicks: Clicks, table: Table, by: str
) -> None:
    schemes = ("s3", "s3a", "gs", "abfss")
    with hostile_server(answering("403 Forbidden")) as store, ExitStack() as servers:
        where = whereabouts(store)
        catalogs: dict[str, Mapping[str, str]] = {}
        for scheme in schemes:
            catalog = servers.enter_context(hostile_catalog(table))
            if by == "server":
                catalog.config = where
            given = where if by == "Secret" else {}
            catalogs[scheme] = {**at_store(catalog, scheme), **given}
        sources = [
            {"name": scheme, "table": f"{scheme}.raw.clicks", "timestampColumn": "at"}
            for scheme in schemes
        ]
        found = refusals(planned(clicks, catalogs, sources=sources), catalogs)
    assert store.requests == []
    assert set(found) == set(schemes)
    for text in found.values():
        assert "AKIAOPERATOR" not in text
        assert "Secret, or set planning.runIn: Pod" in text or "would receive the token" in text


def whereabouts(store: HostileServer) -> dict[str, str]:
    return {
        "s3.endpoint": store.uri,
        "s3.region": "us-east-1",
        "adls.account-name": "lake",
        "adls.blob-storage-scheme": "http",
        "adls.dfs-storage-scheme": "http",
    }


@pytest.mark.usefixtures("operators")
def test_a_workspace_is_not_opened_with_the_operators_keys(clicks: Clicks, table: Table) -> None:
    with hostile_server(answering("403 Forbidden")) as store, hostile_catalog(table) as catalog:
        found = said(
            clicks, {**catalog.properties, **whereabouts(store)}, "s3://lake/default/january"
        )
    assert store.requests == []
    assert (
        "add s3.access-key-id and s3.secret-access-key, or s3.anonymous: true to its Secret"
        in found
    )


@cases(
    ("location", "words"),
    {
        "with its keys": (
            "s3://lake/out",
            "add s3.access-key-id and s3.secret-access-key, or s3.anonymous: true to its Secret",
        ),
        "to its disk": ("/var/tmp/of-the-operator", "is a path on the operator's own disk"),
        "to what only it can reach": ("hdfs://namenode/out", "are not opened in the operator"),
    },
)
@pytest.mark.usefixtures("operators")
def test_files_are_not_exported_as_the_operator(
    clicks: Clicks, table: Table, location: str, words: str
) -> None:
    publish = {"mode": "Export", "location": location}
    asked = [{"name": "out", "table": "lake.raw.clicks", "publish": publish}]
    with hostile_server(answering("403 Forbidden")) as store, hostile_catalog(table) as catalog:
        properties = {**catalog.properties, **whereabouts(store)}
        found = said(clicks, properties, "of-exports", outputs=asked)
    assert store.requests == []
    (line,) = (each for each in found.splitlines() if "publish.location" in each)
    assert words in line
    assert not Path(location).exists()


@pytest.mark.usefixtures("operators")
def test_keys_of_the_team_are_used(clicks: Clicks, table: Table) -> None:
    with hostile_server(answering("403 Forbidden")) as store, hostile_catalog(table) as catalog:
        said(clicks, {**at_store(catalog, "s3"), **whereabouts(store), **KEYS})
    assert store.requests
    assert all("AKIATEAM" in request for request in store.requests)


@pytest.mark.usefixtures("operators")
def test_no_server_has_the_operator_sign_with_its_own_keys(clicks: Clicks, table: Table) -> None:
    with hostile_catalog(table, overrides={"rest.sigv4-enabled": "true"}) as catalog:
        found = said(clicks, catalog.properties)
    assert "add client.access-key-id and client.secret-access-key to its Secret" in found


def test_a_job_that_opens_nothing_of_the_operators_has_nothing_of_its_identity(
    tmp_path: Path,
) -> None:
    own = {
        **dict.fromkeys(
            (
                "AWS_PROFILE",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "AWS_CONFIG_FILE",
            ),
            "x",
        ),
        **dict.fromkeys(
            (
                "GOOGLE_APPLICATION_CREDENTIALS",
                "AZURE_CLIENT_SECRET",
                "PYICEBERG_CATALOG__LAKE__TOKEN",
            ),
            "x",
        ),
        "AWS_REGION": "eu-central-1",
        "PATH": "/usr/bin",
    }
    theirs = GivenCatalog({"uri": "https://catalog"})
    alone = _environment(own, tmp_path, own_identity=Confinement({"lake": theirs}, ()).own_identity)
    assert {
        name for name in alone if name.startswith(("AWS_", "GOOGLE_", "AZURE_", "PYICEBERG_"))
    } == {
        "AWS_REGION",
        "AWS_EC2_METADATA_DISABLED",
    }
    both = _environment(
        own,
        tmp_path,
        own_identity=Confinement(
            {"lake": theirs, "sea": GivenCatalog({}, own=True)}, ()
        ).own_identity,
    )
    assert own.items() <= both.items()


LACKING: list[tuple[str, bool, dict[str, Any]]] = [
    *(
        (scheme, arrow, properties)
        for scheme, arrow, properties in product(
            ("s3", "s3a", "s3n", "oss"),
            (True, False),
            (
                {},
                {"s3.access-key-id": "a"},
                {"s3.access-key-id": "a", "s3.secret-access-key": ""},
                {"s3.session-token": "t"},
                {"s3.anonymous": "false"},
                {"s3.anonymous": "maybe"},
                {"glue.access-key-id": "a", "glue.secret-access-key": "b"},
                {**KEYS, "s3.role-arn": "arn:aws:iam::1:role/admin"},
                {"client.role-arn": "arn:aws:iam::1:role/admin"},
            ),
        )
    ),
    ("s3", True, {"s3.signer": "S3V4RestSigner"}),
    ("gs", True, {}),
    ("gs", True, {"gcs.oauth2.token": "ya29.x"}),
    ("gcs", False, {}),
    *(("abfss", arrow, {"adls.account-name": "lake"}) for arrow in (True, False)),
    ("abfs", True, {"adls.anon": "true"}),
    ("abfs", True, {"adls.token": "t"}),
    ("wasbs", True, {"adls.sas-token.lake.dfs.core.windows.net": "sv=1"}),
    ("wasb", True, {"adls.tenant-id": "t", "adls.client-id": "c"}),
    ("wasb", False, {"adls.connection-string": "BlobEndpoint=https://lake"}),
]


@pytest.mark.parametrize(("scheme", "arrow", "properties"), LACKING)
def test_credentials_that_a_client_would_complete_by_itself_are_not_enough(
    scheme: str, arrow: bool, properties: dict[str, Any]
) -> None:
    assert needed_for_files(scheme, properties, arrow=arrow)


@pytest.mark.parametrize(
    ("scheme", "arrow", "properties"),
    [
        ("s3", True, KEYS),
        ("s3", True, {"s3.access-key-id": "a", "client.secret-access-key": "b"}),
        ("s3", True, {"s3.anonymous": "True"}),
        ("s3", False, {"s3.signer": "S3V4RestSigner"}),
        ("gs", True, {"gcs.oauth2.token": "ya29.x", "gcs.oauth2.token-expires-at": "1"}),
        ("gs", False, {"gcs.oauth2.token": "anon"}),
        ("abfss", True, {"adls.account-name": "lake", "adls.account-key": "k"}),
        ("abfss", True, {"adls.tenant-id": "t", "adls.client-id": "c", "adls.client-secret": "s"}),
        ("abfss", False, {"adls.sas-token.lake.dfs.core.windows.net": "sv=1"}),
        ("file", True, {}),
    ],
)
def test_complete_credentials_are_enough(
    scheme: str, arrow: bool, properties: dict[str, Any]
) -> None:
    assert needed_for_files(scheme, properties, arrow=arrow) is None


@pytest.mark.parametrize("kind", ["glue", "dynamodb"])
def test_catalogs_of_aws_need_keys_of_their_own(kind: str) -> None:
    assert needed_for_catalog(kind, {}) == f"{kind}.access-key-id and {kind}.secret-access-key"
    assert (
        needed_for_catalog(kind, {"client.access-key-id": "a", "client.secret-access-key": "b"})
        is None
    )


def test_no_secret_says_that_it_is_the_operators_own() -> None:
    (wrong,) = refused({"type": "rest", "uri": "https://catalog", "backfill.operators-own": "true"})
    assert wrong.name == "backfill.operators-own"
