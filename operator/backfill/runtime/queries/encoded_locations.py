"""Locations whose URIs have other characters than their paths, such as spaces. Some parts of Spark
take one for the other.
"""

import hashlib
from typing import Any

from pyspark.sql import SparkSession

from backfill.runtime.java_classes import java_classes
from backfill.runtime.spark_versions import FILE_MANAGER

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def is_encoded(spark: SparkSession, location: str) -> bool:
    """Whether the URI of a location has other characters than its path."""
    uri = _path(spark, location).toUri()
    return bool(uri.getRawPath() != uri.getPath())


def for_state_reader(reader: SparkSession, location: str) -> str:
    """Where Spark's reader of state finds a checkpoint, in a session that does nothing else.

    That reader looks for a path with the characters of the URI. Where they are not those of the
    path, this is a link in Hadoop's file system of links, which only the session knows.
    """
    if not is_encoded(reader, location):
        return location
    path, conf = _path(reader, location), reader._jsparkSession.sessionState().newHadoopConf()
    target = str(path.getFileSystem(conf).makeQualified(path).toUri().toString())
    name = hashlib.sha256(target.encode()).hexdigest()[:32]  # Hadoop keeps file systems by name
    reader.conf.set(f"fs.viewfs.mounttable.{name}.link./checkpoint", target)
    reader.conf.set(_FILE_MANAGER, FILE_MANAGER)  # the default cannot follow links
    return f"viewfs://{name}/checkpoint"


def _path(spark: SparkSession, location: str) -> Any:
    return java_classes(spark).org.apache.hadoop.fs.Path(location)
