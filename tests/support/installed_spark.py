"""The version of Spark that tests run with."""

from typing import Final

from backfill.runtime.spark_versions import SPARK

INSTALLED: Final = ".".join(map(str, SPARK))
"""As scripts and directories name it: ``4.3``."""
