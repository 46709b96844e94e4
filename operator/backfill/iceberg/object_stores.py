"""Opens object stores with the connection properties of a catalog,
as PyIceberg opens the files of its tables.
"""

import os
import time
from collections.abc import Mapping
from functools import lru_cache

from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from backfill.iceberg.catalogs import ANY_REGION, catalog_properties, default_region

_STORES = ("s3.", "client.", "gcs.", "adls.", "hdfs.")
_REOPEN_SECONDS = 600.0
"""Seconds after which a store is opened again,
since credentials may be replaced while a process lives.
"""


def open_store(scheme: str, bucket: str, catalog: str) -> FileSystem:
    """The file system of a bucket.

    Raises:
        ValueError: there is no file system for this scheme.
    """
    return _opened(scheme, bucket, catalog, int(time.monotonic() // _REOPEN_SECONDS))


def store_properties(catalog: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A catalog's properties of object stores, with PyIceberg's names. ``s3.endpoint`` and
    ``s3.region`` default to the AWS variables of the environment. Each library finds missing ones,
    such as a pod's identity, in its own way.
    """
    named = {name: str(value) for name, value in catalog_properties(catalog, environment).items()}
    properties = {name: value for name, value in named.items() if name.startswith(_STORES)}
    if endpoint := environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL"):
        properties.setdefault("s3.endpoint", endpoint)
    region = default_region(environment)
    if "s3.endpoint" in properties:
        region = region or ANY_REGION  # otherwise AWS would be asked for the bucket's region
    if region and "client.region" not in properties:
        properties.setdefault("s3.region", region)
    return properties


@lru_cache(maxsize=8)
def _opened(scheme: str, bucket: str, catalog: str, period: int) -> FileSystem:
    return PyArrowFileIO(store_properties(catalog)).fs_by_scheme(scheme, bucket)
