"""Opens the workspace's bucket in Spark's S3A with the properties that open it in PyIceberg.

Other buckets, such as that of the program, are opened as in production. Credentials are set in the
Hadoop configuration of the running context, which executors receive over the network. They are
never Spark properties, which Spark shows and passes on in many places.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from pyspark import SparkContext

from backfill.planning.workspace import Workspace

_PROVIDERS = "org.apache.hadoop.fs.s3a."
_KEEP_DIRECTORIES = ("directory.marker.retention", "keep")
"""As Hadoop does from 3.4 on. The S3A of Spark 3.5 would delete all directories above each file it
writes, and in a store that has real directories it would try that for three minutes.
"""


def open_for_spark(context: SparkContext, workspace: Workspace) -> None:
    """Configures Spark to open a workspace.

    One outside of S3 is opened with production's properties.
    """
    place = urlsplit(workspace.for_spark)
    if place.scheme != "s3a":
        return
    from backfill.iceberg.object_stores import store_properties

    hadoop = context._jsc.hadoopConfiguration()
    options = s3a_options(store_properties(workspace.catalog))
    for name, value in (*options, _KEEP_DIRECTORIES):
        hadoop.set(f"fs.s3a.bucket.{place.netloc}.{name}", value)


def s3a_options(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """PyIceberg's properties of an S3 store, converted to those of S3A."""
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
    """A property. As in PyIceberg, one of S3 takes precedence over one of the client."""
    return properties.get(f"s3.{name}") or properties.get(f"client.{name}")
