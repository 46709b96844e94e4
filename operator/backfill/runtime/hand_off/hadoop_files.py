"""Files at a location that the program has chosen, opened as Spark opens it."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import SparkSession

from backfill.runtime.java_classes import java_classes

_COPIES = 16
"""Files that are copied at once: an object store answers slowly, and many requests at a time."""


class Files:
    """The files below a location."""

    def __init__(self, spark: SparkSession, location: str):
        self._hadoop = java_classes(spark).org.apache.hadoop.fs
        self._utils = java_classes(spark).org.apache.commons.io.IOUtils
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()
        self._root = self._hadoop.Path(location)
        self._system = self._root.getFileSystem(self._conf)

    def names(self) -> list[str]:
        """The names directly below; none if there is nothing."""
        if not self._system.exists(self._root):
            return []
        return [str(each.getPath().getName()) for each in self._system.listStatus(self._root)]

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return bool(self._system.exists(self._path(name)))

    def read(self, name: str) -> str:
        """The text of a file."""
        stream = self._system.open(self._path(name))
        try:
            content: bytes = self._utils.toByteArray(stream)
        finally:
            stream.close()
        return bytes(content).decode()

    def write(self, name: str, text: str) -> None:
        """Replaces a file."""
        stream = self._system.create(self._path(name), True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()

    def remove(self, name: str) -> None:
        """Removes a file, or a directory with everything below."""
        self._system.delete(self._path(name), True)

    def copy(self, origin: "Files", names: Iterable[str]) -> None:
        """Copies files from another location, many at once. Returns when all are complete."""

        def copied(name: str) -> None:
            self._hadoop.FileUtil.copy(
                origin._system,
                origin._path(name),
                self._system,
                self._path(name),
                False,
                True,
                self._conf,
            )

        with ThreadPoolExecutor(_COPIES) as pool:
            list(pool.map(copied, names))

    def _path(self, name: str) -> Any:
        return self._hadoop.Path(self._root, name)
