"""Tables that the application reads once, through the catalogs of the backfill."""

import re
import threading
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from backfill.api.errors import BackfillError, BadInput, Problem, UnsupportedProgram
from backfill.planning.plan import StaticInput, read_header
from backfill.runtime.batch.split_frames import arrow_frame
from backfill.runtime.batch.table_files import whole_table
from backfill.runtime.queries.run_state import Run
from backfill.runtime.source.source_frame import source_schema
from backfill.runtime.source.task_packing import pack_by_bytes
from backfill.runtime.switching.batch_function import delivering, not_the_function
from backfill.runtime.switching.stream_matching import static_table

_TASK_BYTES = 32 * 2**20
_NOT_FOUND = {
    "CATALOG_NOT_FOUND",
    "DATA_SOURCE_NOT_FOUND",
    "REQUIRES_SINGLE_PART_NAMESPACE",  # of a table in a catalog that Spark does not know
    "TABLE_OR_VIEW_NOT_FOUND",
}
_PART = r"(?:`[^`]+`|\w+)"
_READ_IN_SQL = re.compile(rf"\b(?:from|join)\s+({_PART}(?:\s*\.\s*{_PART})+)", re.IGNORECASE)
_NO_QUERY = ("delete", "describe", "show")
"""How statements begin that have no result of a table's rows. Programs may look whether there is
one.
"""


class StaticTables:
    """The static tables of the plan, as batch DataFrames."""

    def __init__(self, run: Run):
        self._run = run
        self._lock = threading.Lock()
        self._files: dict[str, Any] = {}

    def names(self) -> list[str]:
        """Their full names."""
        return [each.table for each in self._planned]

    def name_of(self, written: str) -> str | None:
        """The full name of a table by the application's name for it; None if Spark reads it."""
        if delivering():
            return None
        try:
            static = self._find(written)
        except BadInput as error:
            raise self._run.refuse(error) from None
        return None if static is None else static.table

    def frame(self, spark: SparkSession, written: str) -> DataFrame | None:
        """The rows of a table by the application's name for it; None if it is no static table."""
        if delivering():
            return None
        try:
            static = self._find(written)
            if static is None:
                return None
            # programs may read in several threads, and in functions that must not connect
            with self._lock, not_the_function():
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
            if delivering():
                raise
            raise self._missing(written, error) from None

    def may_be_in(self, text: str, values: Any) -> bool:
        """Whether an SQL text may have the name of one, or a value of its parameters."""
        if delivering():
            return False
        words = f"{text} {values}".lower()
        names = (each.table.rpartition(".")[2].lower() for each in self._planned)
        return any(each in words or "${" in words for each in names)

    def in_sql(self, original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
        """``spark.sql`` that refuses queries of tables which Spark cannot read, and could as static
        tables.
        """

        @wraps(original)
        def sql(self_: SparkSession, sqlQuery: str, *args: Any, **kwargs: Any) -> DataFrame:  # noqa: N803 - Spark's interface
            try:
                return original(self_, sqlQuery, *args, **kwargs)
            except (AnalysisException, Py4JJavaError) as error:
                written = _unknown_table(sqlQuery, str(error))
                # another one may follow
                if written is None or self._run.over.is_set() or delivering():
                    raise
                with not_the_function():
                    raise self._missing(written, error, in_sql=True) from None

        return sql

    def _missing(self, written: str, error: Exception, *, in_sql: bool = False) -> Exception:
        """A program may look for other tables than those in the backfill's catalogs."""
        settings = self._run.settings
        tables = [each.table for each in settings.sources]
        tables += [each.table for each in settings.outputs]
        catalogs = {table.split(".")[0].lower() for table in tables}
        theirs = written.replace("`", "").lower().split(".")[0] in catalogs
        if not any(condition in str(error) for condition in _NOT_FOUND):
            return error
        listed = self._find(written) if theirs or in_sql else None
        if not theirs and listed is None:
            return error
        how, fix = " in SQL text" if in_sql else "", f"add - table: {written.replace('`', '')}"
        if listed is not None:
            how += " with a snapshot or options of its own"
            fix = "read it without them; asOf determines the time of the snapshot"
        problem = Problem(
            "spec.staticTables",
            f"the application reads the table {written}{how}, which Spark cannot read by itself",
            fix,
        )
        return self._run.refuse(UnsupportedProgram(problem))

    def _find(self, written: str) -> StaticInput | None:
        tables = {each.table: each for each in self._planned}
        name = static_table(written, tuple(tables))
        return None if name is None else tables[name]

    @cached_property
    def _planned(self) -> tuple[StaticInput, ...]:
        return read_header(self._run.settings.plan_workspace).inputs.static_tables


def _unknown_table(text: str, message: str) -> str | None:
    """The table in SQL text that Spark's message is about: it has the name, the namespace or the
    catalog.
    """
    if text.lstrip().lower().startswith(_NO_QUERY):
        return None
    tables = [match[1] for match in _READ_IN_SQL.finditer(text)]
    names = [[f"`{part.strip('`')}`" for part in re.findall(_PART, each)] for each in tables]
    for left_out in range(max(map(len, names), default=0)):
        for table, name in zip(tables, names, strict=True):
            known = ".".join(name[: len(name) - left_out]) if left_out < len(name) else ""
            if known and known in message:
                return table
    return None
