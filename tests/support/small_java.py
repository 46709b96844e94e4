"""What makes Spark on a few rows cheap: nothing of it runs long enough to be worth compiling well."""

import sys
from pathlib import Path

QUICK = "-XX:TieredStopAtLevel=1"
_ROOM = "-XX:ReservedCodeCacheSize=240m"
"""For compiled code, as Java has with C2. With C1 alone it is 48 MB, which a session that tests share
for minutes fills: Java then throws code away and compiles it again.
"""
JAVA_OPTIONS = f"{QUICK} {_ROOM} -XX:+UseSerialGC"
PLANNED_NOT_COMPILED = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
ON_A_FEW_ROWS = PLANNED_NOT_COMPILED | {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    # what each task that sorts, aggregates or joins takes at least; by the heap, it is up to 64 MB
    "spark.buffer.pageSize": "1m",
    "spark.ui.enabled": "false",
}
"""For drivers on this machine."""
_ARCHIVE = Path(sys.prefix, "spark-classes.jsa")
"""Made by ``class_archive.py``, for ``make test``."""
LOCAL_FILES = Path(sys.prefix, "local-files.jar")
"""Made by ``local_files_jar.py``, for ``make test``."""


def quick_here() -> str:
    """Options for a JVM of Spark that is started on this machine."""
    return (
        f'{QUICK} -Xlog:disable "-XX:SharedArchiveFile={_ARCHIVE}"' if _ARCHIVE.exists() else QUICK
    )
