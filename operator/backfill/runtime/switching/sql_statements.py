"""SQL statements of the application that do more than to read.

Within a function of ``foreachBatch``, inserts and merges go into the branches of the outputs; what
else writes or defines something is refused, unless the Backfill allows it.
"""

import functools
import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.catalog import Catalog

from backfill.runtime.catalyst import (
    SPARK_CATALOG,
    elements,
    frame_of,
    is_any_of,
    kind_of,
    nodes_of,
    parsed,
    with_name,
    with_values,
)
from backfill.runtime.spark_versions import STATEMENTS
from backfill.runtime.switching.batch_function import (
    BatchInProgress,
    batch_beside,
    batch_in_progress,
    batch_of,
    not_the_function,
    unknown_thread,
    within,
)
from backfill.runtime.switching.batch_statements import statement_of
from backfill.runtime.switching.batch_writers import refuse_part, write_statement
from backfill.runtime.switching.main_program_writes import MainProgram
from backfill.runtime.switching.side_effects import check
from backfill.runtime.switching.tables_in_sql import formatted

_OF_CATALOGS = (
    "analyzeTable",
    "createDatabase",
    "createExternalTable",
    "createTable",
    "dropDatabase",
    "dropTable",
    "dropView",
    "recoverPartitions",
    "truncateTable",
)
"""Methods of ``spark.catalog`` that do what statements do."""
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
_STATEMENTS = tuple(f"{_PLANS}.{name}" for name in STATEMENTS)
_NO_COMMANDS = {"Call", "InsertIntoDir", "UnresolvedExecuteImmediate"}
"""Statements that are none of these classes: calls of procedures, ``INSERT OVERWRITE DIRECTORY``,
and what is in a text that is only known when it runs.
"""
_BY_NAME = "PlanWithUnresolvedIdentifier"
"""A statement, or a part of one, with a table that is named by ``IDENTIFIER(...)``."""
_SHOW = ("Describe", "List", "Show")
"""How the names of statements begin that only show something."""
_OF_SESSION = {
    "AddArchivesCommand",
    "AddFilesCommand",
    "AddJarsCommand",
    "CacheTable",
    "CacheTableAsSelect",
    "ClearCacheCommand",
    "CreateTempViewUsing",
    "CreateVariable",
    "DropVariable",
    "ExplainCommand",
    "RefreshFunction",
    "RefreshResource",
    "RefreshTable",
    "ResetCommand",
    "SetCatalogAndNamespace",
    "SetCatalogCommand",
    "SetCommand",
    "SetNamespaceCommand",
    "SetVariable",
    "UncacheTable",
}
"""Statements that concern only the session, or the application."""

_log = logging.getLogger(__name__)
_installing = threading.Lock()
_program: MainProgram | None = None
"""The program that this process runs."""


def watch_statements(program: MainProgram) -> None:
    """Watches the statements of a program. Call it for each program that this process runs."""
    global _program
    with _installing:
        first, _program = _program is None, program
        if first:
            SparkSession.sql = _sql(SparkSession.sql)  # type: ignore[method-assign]
            for name in filter(partial(hasattr, Catalog), _OF_CATALOGS):
                setattr(Catalog, name, _of_catalog(getattr(Catalog, name), name))
            for name in ("setCurrentCatalog", "setCurrentDatabase"):
                setattr(Catalog, name, _entering(getattr(Catalog, name)))
            Catalog.tableExists = _table_exists(Catalog.tableExists)  # type: ignore[method-assign]
            Catalog.databaseExists = _database_exists(  # type: ignore[method-assign]
                Catalog.databaseExists
            )


def _sql(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def sql(self: SparkSession, *args: Any, **kwargs: Any) -> DataFrame:
        batch = batch_of(self)
        if batch is not None and not batch.redirects:
            return original(self, *args, **kwargs)
        beside = batch_beside() if batch is None else None
        given = signature.bind(self, *args, **kwargs).arguments
        values = given.get("args")
        if batch is None and beside is None:
            if not _may_run(self, given["sqlQuery"], given.get("kwargs", {})):
                return _nothing_written(self)
            try:
                return original(self, *args, **kwargs)
            except Exception:
                if _enters_what_is_there(self, given["sqlQuery"]):
                    return _nothing_written(self)
                raise
        with within(batch), formatted(self, given["sqlQuery"], given.get("kwargs", {})) as text:
            with not_the_function():
                plan = parsed(self, text)
                kind = _effect(self, plan)
                if kind is not None and _is_there(plan):
                    return _nothing_written(self)
            if kind is not None and beside is not None:
                _refuse_beside(beside, plan, self, kind)
            elif kind is not None and (rows := _redirected(self, plan, values)) is not None:
                return rows
            elif kind is not None:
                check("Statements", f"runs an SQL statement ({kind})")
            return original(self, text, values)

    return sql


def _redirected(spark: SparkSession, plan: JavaObject, values: Any) -> DataFrame | None:
    """What a statement gives whose rows are staged; None if it is none of those, or if its table is
    no output and it may happen for real.
    """
    batch = batch_in_progress()
    if batch is None:
        return None
    with not_the_function():
        statement = statement_of(plan, spark)
        if statement is None:
            _check_parts(batch, plan, spark)
            return None
        if not batch.takes(statement.table) and batch.allows("Statements"):
            return None
        rows = frame_of(spark, with_values(spark, statement.rows, values))
    write_statement(batch, rows, statement, f"spark.sql ({statement.how})")
    with not_the_function():
        return _nothing_written(spark)


def _nothing_written(spark: SparkSession) -> DataFrame:
    """What a statement gives whose rows do not go where it says."""
    return spark.createDataFrame([], "num_affected_rows long")


def _may_run(spark: SparkSession, text: str, values: Mapping[str, Any]) -> bool:
    """Whether a statement outside of functions may be run; False if it is left out, or creates
    what is there.

    Raises:
        UnsupportedProgram: it writes or defines something, and the Backfill does not allow that.
    """
    if _program is None:
        return True
    try:
        with formatted(spark, text, values) as complete:
            plan = parsed(spark, complete)
    except ParseException:  # Spark will say so
        return True
    kind = _effect(spark, plan)
    if kind is not None and _is_there(plan):
        return False
    if kind is None or _only_if_missing(spark, plan):
        return True
    statement = statement_of(plan, spark)
    place = None if statement is None else statement.table
    return _program.may("Statements", f"runs an SQL statement ({kind})", place)


def _refuse_beside(
    batch: BatchInProgress, plan: JavaObject, spark: SparkSession, kind: str
) -> None:
    """Refuses a statement of a thread that may be at work for the function of a batch, unless it
    may happen for real.
    """
    with not_the_function():
        if _only_if_missing(spark, plan):
            return  # a thread that starts another query may do so
        if batch.allows("Statements"):
            parts = (statement_of(node, spark) for node in nodes_of(plan))
            if not any(part is not None and batch.takes(part.table) for part in parts):
                return
        raise batch.refuse(unknown_thread(f"an SQL statement ({kind}) is run"))


def _check_parts(batch: BatchInProgress, plan: JavaObject, spark: SparkSession) -> None:
    """Refuses statements with parts that write an output, as one that inserts into several tables:
    allowed effects do not include that.
    """
    parts = (statement_of(node, spark) for node in nodes_of(plan))
    writing = next((each for each in parts if each and batch.takes(each.table)), None)
    if writing is not None:
        raise refuse_part(batch, writing, f"spark.sql ({writing.how})")


def _effect(spark: SparkSession, plan: JavaObject) -> str | None:
    """The kind of a statement that is more than a query; None for queries, and for statements that
    have no effect outside of the session.
    """
    return next((found for node in nodes_of(plan) if (found := _writes(spark, node))), None)


def _writes(spark: SparkSession, node: JavaObject) -> str | None:
    kind = kind_of(node)
    if kind == _BY_NAME:  # what it does is the same with any name
        return _effect(spark, with_name(spark, node, "any"))
    if kind in _NO_COMMANDS:
        return kind
    if not is_any_of(spark, node, _STATEMENTS):
        return None
    harmless = kind.startswith(_SHOW) or kind in _OF_SESSION or _is_temporary(spark, node, kind)
    return None if harmless else kind


def _only_if_missing(spark: SparkSession, plan: JavaObject) -> bool:
    """Whether a statement only creates an empty table or a namespace, unless there is one: most
    programs that do so find it there.
    """
    if kind_of(plan) == _BY_NAME:
        plan = with_name(spark, plan, "any")
    match kind_of(plan):
        case "CreateTable":
            return bool(plan.ignoreIfExists())
        case "CreateNamespace":
            return bool(plan.ifNotExists())
    return False


def _is_there(plan: JavaObject) -> bool:
    """Whether a statement creates a table or a namespace unless there is one, and it is that of a
    source or an output. Spark may not know the catalog, which is the backfill's.
    """
    if _program is None:
        return False
    match kind_of(plan):
        case "CreateTable" | "CreateTableAsSelect" if plan.ignoreIfExists():
            name = plan.name()
            return kind_of(name) == "UnresolvedIdentifier" and _program.has_table(
                _dotted(name.nameParts())
            )
        case "CreateNamespace" if plan.ifNotExists():
            name = plan.name()
            return kind_of(name) == "UnresolvedNamespace" and _program.has_namespace(
                _dotted(name.multipartIdentifier())
            )
    return False


def _enters_what_is_there(spark: SparkSession, text: str) -> bool:
    """Whether a statement that has failed enters (``USE``) a catalog or a namespace of the
    Backfill's tables, which Spark need not know.
    """
    try:
        plan = parsed(spark, text)
    except ParseException:
        return False
    match kind_of(plan):
        case "SetCatalogAndNamespace" if kind_of(plan.child()) == "UnresolvedNamespace":
            return _is_of_backfill(_dotted(plan.child().multipartIdentifier()))
        case "SetNamespaceCommand":
            return _is_of_backfill(_dotted(plan.namespace()))
    return False


def _is_of_backfill(name: str) -> bool:
    found = _program is not None and (_program.has_catalog(name) or _program.has_namespace(name))
    if found:
        _log.info("the application stays where it is, because Spark does not know %s", name)
    return found


def _entering(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def enter(self: Catalog, name: str) -> None:
        try:
            original(self, name)
        except Exception:
            if not _is_of_backfill(name):
                raise

    return enter


def _dotted(name: JavaObject) -> str:
    return ".".join(map(str, elements(name)))


def _is_temporary(spark: SparkSession, node: JavaObject, kind: str) -> bool:
    """Whether a statement defines or drops a view or function of the session."""
    match kind:
        case "CreateViewCommand":
            return "TempView" in str(node.viewType())
        case "CreateFunctionCommand" | "CreateSQLFunctionCommand" | "DropFunctionCommand":
            return bool(node.isTemp())
        case "DropView":
            return _drops_nothing_lasting(spark, node)
    return False


def _drops_nothing_lasting(spark: SparkSession, drop: JavaObject) -> bool:
    """Whether ``DROP VIEW`` drops a view of the session, or ``IF EXISTS`` nothing at all, as where
    a program clears away what an earlier start of it may have left.
    """
    child = drop.child()
    if kind_of(child) != "UnresolvedIdentifier":
        return False  # a name that is computed
    state, name = spark._jsparkSession.sessionState(), child.nameParts()
    if state.catalog().isTempView(name):
        return True
    if name.size() > 1 or state.catalogManager().currentCatalog().name() != SPARK_CATALOG:
        return False  # views of other catalogs may be known to these only
    quoted = str(name.head()).replace("`", "``")
    return bool(drop.ifExists()) and not spark.catalog.tableExists(f"`{quoted}`")


def _of_catalog(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    what = f"calls spark.catalog.{name}"

    @functools.wraps(original)
    def method(self: Catalog, *args: Any, **kwargs: Any) -> Any:
        check("Statements", what)
        if _program is not None and batch_of(self._sparkSession) is None:
            _program.may("Statements", what)
        return original(self, *args, **kwargs)

    return method


def _table_exists(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def exists(
        self: Catalog,
        tableName: str,  # noqa: N803 - Spark's interface
        dbName: str | None = None,  # noqa: N803
    ) -> bool:
        name = tableName if dbName is None else f"{dbName}.{tableName}"
        known = _program is not None and _program.has_table(name)
        return known or original(self, tableName, dbName)

    return exists


def _database_exists(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def exists(self: Catalog, dbName: str) -> bool:  # noqa: N803 - Spark's interface
        known = _program is not None and _program.has_namespace(dbName)
        return known or original(self, dbName)

    return exists
