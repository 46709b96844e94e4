"""A relation of Spark's own over files that are known: none of them is looked for in its store.

Made from Spark's internals: a reader that is given paths would ask the store for each.
"""

import hashlib
from collections.abc import Sequence

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from backfill.runtime.batch.native_files import NativeFile

_OPTIONS = {
    "spark.sql.parquet.fieldId.read.enabled": "true",  # of this relation, not of the session
    "datetimeRebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "recursiveFileLookup": "true",  # else directories are taken for partitions
}


def relation_of(
    spark: SparkSession, files: Sequence[NativeFile], schema: StructType
) -> DataFrame | None:
    """All rows of some files, in columns with field ids. None where Spark keeps no lists of files,
    or not this one: it is too long for its cache.
    """
    jvm, session = spark._jvm, spark._jsparkSession
    assert jvm is not None  # in classic PySpark
    sources = jvm.org.apache.spark.sql.execution.datasources
    none, options = jvm.scala.Option.apply(None), jvm.PythonUtils.toScalaMap(_OPTIONS)
    columns = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
    listed = _listed(spark, files)
    index = sources.InMemoryFileIndex(
        session,
        jvm.PythonUtils.toSeq([_root(spark, files)]),
        options,
        jvm.scala.Option.apply(columns),
        listed,
        none,
        none,
    )
    listed.invalidateAll()  # the index has them now
    if index.allFiles().size() != len(files):
        return None  # it has looked for the root, which is not there, and found nothing
    relation = sources.HadoopFsRelation(
        index,
        jvm.org.apache.spark.sql.types.StructType(),
        columns,
        none,
        sources.parquet.ParquetFileFormat(),
        options,
        session,
    )
    return DataFrame(session.baseRelationToDataFrame(relation), spark)


def _root(spark: SparkSession, files: Sequence[NativeFile]) -> JavaObject:
    """Stands for a set of files. Spark takes two relations of the same root for the same, whatever
    files they have.
    """
    names = hashlib.sha256("\n".join(sorted(file.path for file in files)).encode()).hexdigest()
    return _path(spark, f"file:///backfill/files-{names}")


def _listed(spark: SparkSession, files: Sequence[NativeFile]) -> JavaObject:
    """A cache of Spark's in which the root has been listed."""
    jvm = spark._jvm
    assert jvm is not None
    kind = jvm.org.apache.hadoop.fs.FileStatus
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    found = gateway.new_array(kind, len(files))
    for number, file in enumerate(files):
        path = _path(spark, f"file://{file.path.removeprefix('file://')}")
        found[number] = kind(file.bytes, False, 1, 128 << 20, 0, path)
    cache = jvm.org.apache.spark.sql.execution.datasources.FileStatusCache.getOrCreate(
        spark._jsparkSession
    )
    cache.putLeafFiles(_root(spark, files), found)
    return cache


def _path(spark: SparkSession, uri: str) -> JavaObject:
    assert spark._jvm is not None
    return spark._jvm.org.apache.hadoop.fs.Path(uri)
