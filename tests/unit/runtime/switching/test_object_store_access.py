"""How a workspace in an object store is opened, from PyIceberg's properties and the environment."""

from pathlib import Path

import pytest

from backfill.api.backfill import Backfill
from backfill.iceberg.object_stores import store_properties
from backfill.runtime.switching.object_store import s3a_options
from spark_applications import KUBEFLOW, backfill_of

KEYS = {"s3.access-key-id": "key", "s3.secret-access-key": "secret"}
SIMPLE, TEMPORARY = (
    f"org.apache.hadoop.fs.s3a.{kind}AWSCredentialsProvider" for kind in ("Simple", "Temporary")
)


@pytest.mark.parametrize(
    ("case", "properties", "options"),
    [
        ("an identity of the pod needs nothing", {}, {}),
        ("a region alone", {"s3.region": "eu-west-1"}, {"endpoint.region": "eu-west-1"}),
        (
            "keys in place of the provider that production uses",
            KEYS,
            {"access.key": "key", "secret.key": "secret", "aws.credentials.provider": SIMPLE},
        ),
        (
            "keys for all of AWS, for a while",
            {
                "client.access-key-id": "key",
                "client.secret-access-key": "secret",
                "client.session-token": "token",
            },
            {
                "access.key": "key",
                "secret.key": "secret",
                "session.token": "token",
                "aws.credentials.provider": TEMPORARY,
            },
        ),
        ("half a pair of keys", {"s3.access-key-id": "key"}, {}),
        (
            "a store with the bucket in the path",
            {"s3.endpoint": "http://minio:9000"},
            {"endpoint": "http://minio:9000", "path.style.access": "true"},
        ),
        (
            "a store with the bucket in the host's name",
            {"s3.endpoint": "https://s3.example", "s3.force-virtual-addressing": "True"},
            {"endpoint": "https://s3.example", "path.style.access": "false"},
        ),
    ],
)
def test_what_s3a_is_told(case: str, properties: dict[str, str], options: dict[str, str]) -> None:
    assert dict(s3a_options(properties)) == options, case


def test_a_mounted_secret_goes_before_the_environment_and_only_what_opens_stores_is_taken(
    tmp_path: Path,
) -> None:
    (tmp_path / "lake").mkdir()
    for name, value in {
        "uri": "postgresql://me:secret@db",
        "s3.endpoint": "http://minio:9000\n",
        "s3.region": "eu",
    }.items():
        (tmp_path / "lake" / name).write_text(value)
    environment = {
        "BACKFILL_CATALOGS": str(tmp_path),
        "AWS_ENDPOINT_URL": "http://other",
        "AWS_REGION": "us-west-2",
    }
    assert store_properties("lake", environment) == {
        "s3.endpoint": "http://minio:9000",
        "s3.region": "eu",
    }


@pytest.mark.parametrize(
    ("environment", "properties"),
    [
        ({}, {}),
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, {"s3.region": "eu-west-1"}),
        ({"AWS_ENDPOINT_URL": "http://a"}, {"s3.endpoint": "http://a", "s3.region": "us-east-1"}),
        (
            {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b", "AWS_REGION": "eu"},
            {"s3.endpoint": "http://b", "s3.region": "eu"},
        ),
    ],
)
def test_what_no_catalog_says_is_taken_from_the_variables_of_aws(
    environment: dict[str, str], properties: dict[str, str]
) -> None:
    assert store_properties("nobody-knows-this-catalog", environment) == properties


@pytest.mark.parametrize(
    ("catalogs", "opens"),
    [
        ([], "lake"),
        ([{"name": "other"}], "lake"),
        (
            [
                {"name": "other"},
                {"name": "store", "secretRef": {"name": "a"}},
                {"name": "lake", "secretRef": {"name": "b"}},
            ],
            "store",
        ),
    ],
)
def test_the_first_catalog_with_a_secret_opens_the_workspace(
    catalogs: list[dict[str, object]], opens: str
) -> None:
    backfill: Backfill = backfill_of(KUBEFLOW, catalogs=catalogs)
    assert backfill.spec.workspace_catalog == opens
