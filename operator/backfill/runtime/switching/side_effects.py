"""What a function of ``foreachBatch`` does besides writing DataFrames, as far as this process can
see it: it is refused at the call, unless the Backfill allows it.

Seen are connections and processes of Python code in the driver, connections of some clients that
are not written in Python, use of Spark's JVM, and what runs on executors only for its effects;
:mod:`backfill.runtime.switching.sql_statements` sees SQL statements. Not seen are connections that
were open before, those of other libraries that are not written in Python or that have threads of
their own from before, files, and whatever functions do on executors that give rows.
"""

import functools
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures.thread import _worker
from contextlib import nullcontext
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from backfill.api.spec import Effect
from backfill.runtime.spark_versions import ClassicDataFrame
from backfill.runtime.switching.batch_function import (
    BatchInProgress,
    batch_in_progress,
    not_the_function,
    within,
)
from backfill.runtime.switching.late_imports import when_imported
from backfill.runtime.switching.program_lines import library_call

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
_CONNECTING = {
    "MySQLdb": "connect",
    "mysql.connector": "connect",
    "psycopg": "connect",
    "psycopg2": "_connect",  # what its connect() calls, under whatever name a program has that
    "pymssql": "connect",
    "pyodbc": "connect",
}
"""Clients of databases that are not written in Python: by module, the function that connects.
"""
_SPARK = {"pyspark", "py4j"}
_OWN = {"backfill", *_SPARK}
_ROOTS = {"_jvm", "_gateway"}
"""Attributes that have all packages of the JVM."""
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
        check_clients(lambda: check("Connections", f"connects to a database{library_call()}"))
        start = _checked(BaseProcess.start, "Processes", "starts a process")  # few have an event
        BaseProcess.start = start  # type: ignore[method-assign]
        _inherit_the_batch()
        for name in _ONLY_EFFECTS:
            what = f"runs code on executors ({name})"
            setattr(RDD, name, _checked(getattr(RDD, name), "ForeachPartition", what))
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
    check(effect, what.format(*map(_named, subject)) + library_call())


def check_clients(check: Callable[[], None]) -> None:
    """Calls ``check`` before a client that is not written in Python connects, from now on: also one
    that is imported later. Python's audit hooks do not see these connections.
    """
    when_imported(_CONNECTING, lambda module: _check_client(module, check))


def _check_client(module: ModuleType, check: Callable[[], None]) -> None:
    name = _CONNECTING[module.__name__]
    original = getattr(module, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def connect(*args: Any, **kwargs: Any) -> Any:
        check()
        return original(*args, **kwargs)

    setattr(module, name, connect)


def _named(subject: Any) -> str:
    """An address as host and port; a program without its arguments, which may be secrets."""
    if isinstance(subject, tuple) and len(subject) > 1:
        return f"{subject[0]}:{subject[1]}"
    if isinstance(subject, bytes):  # as of os.system
        subject = os.fsdecode(subject)
    if isinstance(subject, str):
        return subject.split(maxsplit=1)[0] if subject else "?"
    return str(subject)


def check(effect: Effect, what: str) -> None:
    """Refuses what the function of a batch does in this thread, unless the Backfill allows it."""
    batch = batch_in_progress()
    if batch is None:
        return
    with not_the_function():
        if not batch.allows(effect):
            raise batch.refuse_effect(effect, what)


def _caller(depth: int) -> str:
    """The package whose code made the call, this many frames up."""
    return str(sys._getframe(depth).f_globals.get("__name__", "")).partition(".")[0]


def _checked(original: Callable[..., Any], effect: Effect, what: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(effect, what)
        return original(self, *args, **kwargs)

    return method


def _guarded(owner: type, name: str) -> property:
    """An attribute of instances that PySpark itself uses and that leads to Spark's JVM."""

    def get(self: Any) -> Any:
        try:
            found = self.__dict__[name]
        except KeyError:
            raise AttributeError(name) from None
        return _JvmPart((name,), lambda: found) if _is_for_the_function() else found

    def put(self: Any, value: Any) -> None:
        self.__dict__[name] = value

    return property(get, put)


def _guard_context() -> None:
    original = SparkContext.__getattribute__
    guarded = {"_jvm", "_jsc", "_gateway"}

    def get(self: SparkContext, name: str) -> Any:
        if name in guarded and _is_for_the_function():
            return _JvmPart((name,), lambda: original(self, name))
        return original(self, name)

    SparkContext.__getattribute__ = get  # type: ignore[assignment,method-assign]


def _is_for_the_function() -> bool:
    """Whether code of a batch's function, or a library that it calls, has asked for an attribute
    that leads to Spark's JVM, which it may not use.
    """
    batch = batch_in_progress()
    return batch is not None and _caller(3) not in _OWN and not batch.allows("Jvm")


class _JvmPart:
    """Something in Spark's JVM, by its names, such as a package, a class or an object: to have it
    does nothing; it is refused where it is called, so that the message can name what is called.
    """

    def __init__(self, names: tuple[str, ...], find: Callable[[], Any]):
        self.__names = names
        self.__find = find

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "Java":  # as Py4J asks of what it gives to the JVM
            self.__check("uses")
            return getattr(self.__find(), name)
        return _JvmPart((*self.__names, name), lambda: getattr(self.__find(), name))

    def __call__(self, *arguments: Any) -> Any:
        self.__check("calls")
        return self.__find()(*arguments)

    def __check(self, does: str) -> None:
        names = self.__names
        known = names[1 + (names[:2] == ("_gateway", "jvm")) :] if names[0] in _ROOTS else names
        check("Jvm", f"{does} {'.'.join(known or names)} in Spark's JVM{library_call()}")


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
            with within(batch), nullcontext() if batch is None else batch.part():
                return call(*args, **kwargs)
        finally:
            if end is not None:
                end()

    return part
