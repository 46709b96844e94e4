"""The classes of Spark's JVM by their names, looked up once.

Py4J asks the JVM for every part of a name, each time it is used: whether ``org`` is a class, then
``org.apache``, and so on, which Java answers after a search of all JARs. ``a.b.C.method()``
takes several milliseconds of processor time, and a query needs thousands of such calls.
"""

from functools import lru_cache
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember
from pyspark import SparkContext
from pyspark.sql import SparkSession


def java_classes(spark: SparkSession | type[SparkContext]) -> Any:
    """Packages and classes, as ``spark._jvm`` has them: of a session, or of the process."""
    return _in(spark._jvm)


def find_once_in_pyspark(spark: SparkSession) -> None:
    """Lets PySpark itself find classes once that it needs several times to tell of a query's
    progress, or of an error: the end of a Java iterator is one.
    """
    _in(spark._jvm)


def query_listener(spark: SparkSession, events: object) -> Any:
    """Spark's listener to queries that passes events on to an object of Python."""
    wrapper = java_classes(spark).org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
    return wrapper(events)


@lru_cache(maxsize=1)
def _in(jvm: Any) -> Any:
    classes = _Package(jvm, "")
    jvm.py4j = classes.py4j
    progress = classes.org.apache.spark.sql.api.python.PythonSQLUtils
    if isinstance(progress, JavaClass):
        jvm.PythonSQLUtils = progress
    return classes


class _Package:
    """A package: what begins with a small letter is another one, which need not be asked for."""

    def __init__(self, jvm: Any, prefix: str):
        self._jvm = jvm
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        path = f"{self._prefix}{name}"
        if name[0].islower():
            found: Any = _Package(self._jvm, f"{path}.")
        else:
            found = getattr(self._jvm, path)
            if not isinstance(found, JavaClass):
                return found  # a JAR that is added may have it
            found = _Class(found._fqn, found._gateway_client)
        setattr(self, name, found)
        return found


class _Class(JavaClass):  # type: ignore[misc]  # Py4J has no types
    """A class that finds each of its methods once."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found
