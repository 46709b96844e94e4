"""The workspace's bucket, opened by Spark's S3A with what opens it for PyIceberg.

Only that bucket: how production reaches others, such as the one its program is in, stays as it is.
Credentials go into the Hadoop configuration of the running context, which executors get over the
wire, and never become Spark properties, that Spark shows and hands on in many places.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from pyspark import SparkContext

from backfill.planning.workspace import Workspace

_PROVIDERS = "org.apache.hadoop.fs.s3a."


def open_for_spark(context: SparkContext, workspace: Workspace) -> None:
    """Tells Spark how to open a workspace. One that is in no S3 bucket is opened as production's
    properties say.
    """
    place = urlsplit(workspace.for_spark)
    if place.scheme != "s3a":
        return
    from backfill.iceberg.storage import store_properties

    hadoop = context._jsc.hadoopConfiguration()
    for name, value in s3a_options(store_properties(workspace.catalog)):
        hadoop.set(f"fs.s3a.bucket.{place.netloc}.{name}", value)


def s3a_options(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """PyIceberg's properties of an S3 store as S3A calls them."""
    if endpoint := properties.get("s3.endpoint"):
        yield "endpoint", endpoint
        yield (
            "path.style.access",
            str(properties.get("s3.force-virtual-addressing", "false").lower() != "true").lower(),
        )
    if region := _first(properties, "region"):
        yield "endpoint.region", region
    key, secret = _first(properties, "access-key-id"), _first(properties, "secret-access-key")
    if not (key and secret):
        return
    yield "access.key", key
    yield "secret.key", secret
    token = _first(properties, "session-token")
    if token:
        yield "session.token", token
    yield (
        "aws.credentials.provider",
        f"{_PROVIDERS}{'Temporary' if token else 'Simple'}AWSCredentialsProvider",
    )


def _first(properties: Mapping[str, str], name: str) -> str | None:
    """As PyIceberg does: what is said of S3 goes before what is said of AWS."""
    return properties.get(f"s3.{name}") or properties.get(f"client.{name}")
