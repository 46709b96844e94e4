"""What a function of ``foreachBatch`` does besides writing DataFrames, as far as this process can
see it: it is refused at the call, unless the Backfill allows it.

Seen are connections and processes of Python code in the driver, SQL statements, direct use of
Spark's JVM, and what runs on executors only for its effects. Not seen are connections that were
open before, connections of libraries that are not written in Python or that have threads of their
own from before, files, and whatever functions do on executors that give rows.
"""

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures.thread import _worker
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.sql_formatter import SQLStringFormatter

from backfill.api.spec import Effect
from backfill.runtime.catalyst import frame_of, is_any_of, kind_of, nodes_of, with_values
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

_EVENTS: dict[str, tuple[Effect, str]] = {
    "socket.connect": ("Connections", "connects to {}"),
    "socket.sendto": ("Connections", "sends to {}"),
    "socket.sendmsg": ("Connections", "sends to {}"),
    "subprocess.Popen": ("Processes", "starts the process {}"),
    "os.system": ("Processes", "starts the process {}"),
    "os.exec": ("Processes", "starts the process {}"),
    "os.fork": ("Processes", "starts a process"),
    "os.forkpty": ("Processes", "starts a process"),
    "os.posix_spawn": ("Processes", "starts the process {}"),
}
"""Events of Python's audit hooks, by their names."""
_SUBJECT = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1}
"""Which argument of an event says what it is about, if not the first."""
_SPARK = {"pyspark", "py4j"}
_OWN = {"backfill", *_SPARK}
_ONLY_EFFECTS = (
    "foreach",
    "foreachPartition",
    "saveAsHadoopDataset",
    "saveAsHadoopFile",
    "saveAsNewAPIHadoopDataset",
    "saveAsNewAPIHadoopFile",
    "saveAsPickleFile",
    "saveAsSequenceFile",
    "saveAsTextFile",
)
"""Methods of RDDs that have no result."""
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
_STATEMENTS = (f"{_PLANS}.Command", f"{_PLANS}.ParsedStatement", f"{_PLANS}.CompoundPlanStatement")
_NO_COMMANDS = {"InsertIntoDir", "UnresolvedExecuteImmediate"}
"""Statements that are none of these classes: ``INSERT OVERWRITE DIRECTORY``, and what is in a text
that is only known when it runs.
"""
_SHOW = ("Describe", "List", "Show")
"""How the names of statements begin that only show something."""
_OF_SESSION = {
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
"""Statements that concern only the session."""

_installing = threading.Lock()
_installed = False


def install_effects() -> None:
    """Watches what functions do, in this process and from now on. Call it as often as you like."""
    global _installed  # noqa: PLW0603 - an audit hook cannot be removed
    with _installing:
        if _installed:
            return
        _installed = True
        sys.addaudithook(_audit)
        start = _checked(BaseProcess.start, "Processes", "starts a process")  # few have an event
        BaseProcess.start = start  # type: ignore[method-assign]
        _inherit_the_batch()
        SparkSession.sql = _sql(SparkSession.sql)  # type: ignore[method-assign]
        for name in _ONLY_EFFECTS:
            what = f"runs {name} on executors"
            setattr(RDD, name, _checked(getattr(RDD, name), "ForeachPartition", what))
        for name in _OF_CATALOGS:
            what = f"calls spark.catalog.{name}"
            setattr(Catalog, name, _checked(getattr(Catalog, name), "Statements", what))
        for owner, names in {
            SparkSession: ("_jvm", "_jsparkSession"),
            ClassicDataFrame: ("_jdf",),
        }.items():
            for name in names:
                setattr(owner, name, _guarded(owner, name))
        _guard_context()


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    found = _EVENTS.get(event)
    if found is None:
        return
    batch = batch_in_progress()
    if batch is None or _caller(2) in _SPARK:
        return
    effect, what = found
    subject = arguments[_SUBJECT.get(event, 0) : _SUBJECT.get(event, 0) + 1]
    _check(effect, what.format(*map(_named, subject)))


def _named(subject: Any) -> str:
    """An address as host and port; a program without its arguments, which may be secrets."""
    if isinstance(subject, tuple) and len(subject) > 1:
        return f"{subject[0]}:{subject[1]}"
    if isinstance(subject, str):
        return subject.split(maxsplit=1)[0] if subject else "?"
    return str(subject)


def _check(effect: Effect, what: str) -> None:
    batch = batch_in_progress()
    if batch is None:
        return
    with not_the_function():
        if not batch.allows(effect):
            raise batch.refuse_effect(effect, what)


def _caller(depth: int) -> str:
    """The package whose code made the call, this many frames up."""
    return str(sys._getframe(depth).f_globals.get("__name__", "")).partition(".")[0]


def _sql(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def sql(self: SparkSession, *args: Any, **kwargs: Any) -> DataFrame:
        batch = batch_of(self)
        beside = batch_beside() if batch is None else None
        if batch is None and beside is None:
            return original(self, *args, **kwargs)
        given = signature.bind(self, *args, **kwargs).arguments
        values = given.get("args")
        with within(batch), _formatted(self, given["sqlQuery"], given.get("kwargs", {})) as text:
            with not_the_function():
                plan = self._jsparkSession.sessionState().sqlParser().parsePlan(text)
                kind = _effect(self, plan)
            if kind is not None and beside is not None:
                _refuse_beside(beside, plan, self, kind)
            elif kind is not None and (rows := _redirected(self, plan, values)) is not None:
                return rows
            elif kind is not None:
                _check("Statements", f"runs an SQL statement ({kind})")
            return original(self, text, values)

    return sql


@contextmanager
def _formatted(spark: SparkSession, text: str, values: Mapping[str, Any]) -> Iterator[str]:
    """A statement with values in place of names in braces, as PySpark puts them there: DataFrames
    are views meanwhile.
    """
    formatter = SQLStringFormatter(spark)
    try:
        yield formatter.format(text, **values) if values else text
    finally:
        formatter.clear()


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
        return spark.createDataFrame([], "num_affected_rows long")


def _refuse_beside(
    batch: BatchInProgress, plan: JavaObject, spark: SparkSession, kind: str
) -> None:
    """Refuses a statement of a thread that may be at work for the function of a batch, unless it
    may happen for real.
    """
    with not_the_function():
        if kind_of(plan) == "CreateTable" and plan.ignoreIfExists():
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
    kind = kind_of(node).removesuffix("$")
    if kind in _NO_COMMANDS:
        return kind
    if not is_any_of(spark, node, _STATEMENTS):
        return None
    harmless = kind.startswith(_SHOW) or kind in _OF_SESSION or _is_temporary(spark, node, kind)
    return None if harmless else kind


def _is_temporary(spark: SparkSession, node: JavaObject, kind: str) -> bool:
    """Whether a statement defines or drops a view or function of the session."""
    match kind:
        case "CreateViewCommand":
            return "TempView" in str(node.viewType())
        case "CreateFunctionCommand" | "CreateSQLFunctionCommand" | "DropFunctionCommand":
            return bool(node.isTemp())
        case "DropView":
            name = node.child().nameParts()
            return bool(spark._jsparkSession.sessionState().catalog().isTempView(name))
    return False


def _checked(original: Callable[..., Any], effect: Effect, what: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _check(effect, what)
        return original(self, *args, **kwargs)

    return method


def _guarded(owner: type, name: str) -> property:
    """An attribute of instances that PySpark itself uses and that leads to Spark's JVM."""

    def get(self: Any) -> Any:
        _check_jvm(name)
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(name) from None

    def put(self: Any, value: Any) -> None:
        self.__dict__[name] = value

    return property(get, put)


def _guard_context() -> None:
    original = SparkContext.__getattribute__
    guarded = {"_jvm", "_jsc", "_gateway"}

    def get(self: SparkContext, name: str) -> Any:
        if name in guarded:
            _check_jvm(name)
        return original(self, name)

    SparkContext.__getattribute__ = get  # type: ignore[assignment,method-assign]


def _check_jvm(name: str) -> None:
    if batch_in_progress() is not None and _caller(3) not in _OWN:
        _check("Jvm", f"uses Spark's JVM directly ({name})")


def _inherit_the_batch() -> None:
    """Makes threads and tasks of thread pools belong to the batch in which they are started."""
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def inheriting_start(self: threading.Thread) -> None:
        batch = batch_in_progress()
        if batch is None:
            start(self)
            return
        end = None if _is_of_a_pool(self) else batch.parts.begin()
        self.run = _part_of(batch, self.run, end)  # type: ignore[method-assign]
        try:
            start(self)
        except BaseException:
            if end is not None:
                end()
            raise

    def inheriting_submit(
        self: Executor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        batch = batch_in_progress()
        future = submit(self, _part_of(batch, fn), *args, **kwargs)
        if batch is not None:
            end = batch.parts.begin()
            future.add_done_callback(lambda _: end())
        return future

    threading.Thread.start = inheriting_start  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = inheriting_submit  # type: ignore[method-assign]


def _is_of_a_pool(thread: threading.Thread) -> bool:
    """Whether a thread waits for the tasks of a pool, which are counted by themselves."""
    return getattr(thread, "_target", None) is _worker


def _part_of(
    batch: BatchInProgress | None,
    call: Callable[..., Any],
    end: Callable[[], None] | None = None,
) -> Callable[..., Any]:
    """A call as a part of a batch, or of none. ``end`` is called after it."""

    def part(*args: Any, **kwargs: Any) -> Any:
        try:
            with within(batch):
                return call(*args, **kwargs)
        finally:
            if end is not None:
                end()

    return part
