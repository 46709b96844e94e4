"""Tables that the application reads once, through the catalogs of the backfill."""

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from backfill.api.errors import BackfillError, BadInput, Problem, UnsupportedProgram
from backfill.planning.plan import StaticInput, read_header
from backfill.runtime.batch.arrow_leaf import arrow_frame
from backfill.runtime.batch.table_files import whole_table
from backfill.runtime.queries.run import Run
from backfill.runtime.source.data_source import source_schema
from backfill.runtime.source.packing import pack_by_bytes
from backfill.runtime.switching.matching import static_table

_TASK_BYTES = 32 * 2**20
_NOT_FOUND = {
    "CATALOG_NOT_FOUND",
    "DATA_SOURCE_NOT_FOUND",
    "REQUIRES_SINGLE_PART_NAMESPACE",  # of a table in a catalog that Spark does not know
    "TABLE_OR_VIEW_NOT_FOUND",
}


class StaticTables:
    """The static tables of the plan, as batch DataFrames."""

    def __init__(self, run: Run):
        self._run = run
        self._lock = threading.Lock()
        self._files: dict[str, Any] = {}

    def frame(self, spark: SparkSession, written: str) -> DataFrame | None:
        """The rows of a table by the application's name for it; None if it is no static table."""
        try:
            static = self._find(written)
            if static is None:
                return None
            with self._lock:  # programs may read in several threads
                if static.table not in self._files:
                    self._files[static.table] = whole_table(static)
                table, splits = self._files[static.table]
            schema = source_schema(table, with_record=False)
        except BadInput as error:
            if error.may_pass:  # the next attempt may find the catalog answering
                raise BackfillError(str(error)) from error
            raise self._run.refuse(error) from None
        size = sum(split.bytes for split in splits)
        tasks = max(spark.sparkContext.defaultParallelism, size // _TASK_BYTES)
        return arrow_frame(spark, table, pack_by_bytes(splits, tasks), schema)

    def by_spark(self, written: str, read: Callable[[], DataFrame]) -> DataFrame:
        """What Spark reads by itself.

        Raises:
            UnsupportedProgram: it cannot, and could as a static table.
        """
        try:
            return read()
        except (AnalysisException, Py4JJavaError) as error:
            raise self._missing(written, error) from None

    def _missing(self, written: str, error: Exception) -> Exception:
        """A program may look for other tables than those in the backfill's catalogs."""
        settings = self._run.settings
        tables = [each.table for each in settings.sources]
        tables += [each.table for each in settings.outputs]
        catalogs = {table.split(".")[0].lower() for table in tables}
        theirs = written.replace("`", "").lower().split(".")[0] in catalogs
        if not theirs or not any(condition in str(error) for condition in _NOT_FOUND):
            return error
        listed = self._find(written)
        problem = Problem(
            "spec.staticTables",
            f"the application reads the table {written}"
            f"{' with options of its own' if listed else ''}, which Spark cannot read by itself",
            "read it without options, as of the time that asOf chooses"
            if listed
            else f"add - table: {written.replace('`', '')}",
        )
        return self._run.refuse(UnsupportedProgram(problem))

    def _find(self, written: str) -> StaticInput | None:
        tables = {each.table: each for each in self._planned}
        name = static_table(written, tuple(tables))
        return None if name is None else tables[name]

    @cached_property
    def _planned(self) -> tuple[StaticInput, ...]:
        return read_header(self._run.settings.plan_workspace).inputs.static_tables
