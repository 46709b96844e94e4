"""What makes Spark on a few rows cheap: nothing of it runs long enough to be worth compiling well."""

import sys
from pathlib import Path

QUICK = "-XX:TieredStopAtLevel=1"
JAVA_OPTIONS = f"{QUICK} -XX:+UseSerialGC"
PLANNED_NOT_COMPILED = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
ON_A_FEW_ROWS = PLANNED_NOT_COMPILED | {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
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
