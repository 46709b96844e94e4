"""Libraries by which a function of ``foreachBatch`` may reach other systems.

Nothing is called. What an empty batch does not reach, such as a request for each row, is found so.
"""

import dis
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from backfill.runtime.surveying.reached_values import reached
from backfill.runtime.switching.program_lines import is_of_the_program

UNSEEN: Final = (
    *("aerospike", "confluent_kafka", "couchbase", "cx_Oracle", "deltalake", "duckdb"),
    *("google.cloud", "grpc", "ibm_db", "oracledb", "pulsar", "pycurl", "sqlite3", "zmq"),
)
"""Those that connect or write without Python's audit hooks."""
_SEEN = (
    *("MySQLdb", "aiohttp", "aiokafka", "asyncpg", "azure", "boto3", "botocore", "cassandra"),
    *("clickhouse_connect", "clickhouse_driver", "elasticsearch", "ftplib", "happybase", "hdfs"),
    *("http.client", "httpx", "influxdb", "influxdb_client", "kafka", "mysql", "neo4j"),
    *("opensearchpy", "paho", "paramiko", "pika", "psycopg", "psycopg2", "pymongo", "pymssql"),
    *("pymysql", "pyodbc", "redis", "requests", "smtplib", "snowflake", "socket", "sqlalchemy"),
    *("subprocess", "urllib.request", "urllib3", "valkey", "xmlrpc.client", "multiprocessing"),
)
"""Those whose connections and processes are seen when they begin."""
_CLIENTS = frozenset((*UNSEEN, *_SEEN))


def clients(function: Any) -> tuple[str, ...]:
    """The clients that a function refers to, by module, in alphabetical order: as modules, by what
    is imported from them, or as objects of their classes. Functions and classes of its own module
    are followed; of other modules of the program, all that they refer to counts.
    """
    pending = list(_referred(function))
    seen, found = set[str](), set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if client := _client(name):
            found.add(client)
        elif (module := sys.modules.get(name)) is not None and _is_own(module):
            for value in list(vars(module).values()):
                of = _module_of(value)
                pending.append(of)
                if issubclass(type(value), ModuleType):  # as after import package.part
                    pending += (each for each in _CLIENTS if each.startswith(f"{of}."))
    return tuple(sorted(found))


def _referred(function: Any) -> Iterator[str]:
    """Names of the modules that a function refers to, and functions and classes of its module."""
    pending = [each for each in reached(function) if issubclass(type(each), FunctionType)]
    seen: dict[int, FunctionType] = {}
    while pending:
        each = pending.pop()
        if id(each.__code__) in seen:
            continue
        seen[id(each.__code__)] = each
        yield from _imported(each.__code__)
        names = each.__code__.co_names
        for value in _values(each):
            module = _module_of(value)
            if issubclass(type(value), FunctionType) and module == each.__module__:
                pending.append(value)
            elif module != each.__module__:
                yield module
                yield from (f"{module}.{name}" for name in names)  # as in package.part.call()
            elif not issubclass(type(value), ModuleType):
                pending += _methods(value if issubclass(type(value), type) else type(value))


def _imported(code: CodeType) -> Iterator[str]:
    for each in dis.get_instructions(code):
        if each.opname == "IMPORT_NAME":
            yield str(each.argval)


def _values(function: FunctionType) -> Iterator[Any]:
    """What a function refers to in its module and in the functions around it."""
    module = function.__globals__
    yield from (module[name] for name in function.__code__.co_names if name in module)
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # it has no value yet
            yield cell.cell_contents
    for code in function.__code__.co_consts:  # functions within it
        if isinstance(code, CodeType):
            yield FunctionType(code, module, closure=_no_cells(code))


def _no_cells(code: CodeType) -> tuple[CellType, ...]:
    return tuple(CellType() for _ in code.co_freevars)


def _methods(kind: type) -> list[FunctionType]:
    """The functions of a class and of its base classes, also behind properties and wrappers."""
    parts = [each for base in kind.__mro__ for each in vars(base).values()]
    parts += [each.fget for each in parts if issubclass(type(each), property)]
    found = [getattr(each, "__wrapped__", getattr(each, "__func__", each)) for each in parts]
    return [each for each in found if issubclass(type(each), FunctionType)]


def _is_own(module: ModuleType) -> bool:
    """Whether a module belongs to the program."""
    file = vars(module).get("__file__")
    return isinstance(file, str) and is_of_the_program(file)


def _module_of(value: Any) -> str:
    """The module that a value is, or comes from. Nothing of its own is called."""
    kind = type(value)
    if issubclass(kind, ModuleType):
        return str(vars(value).get("__name__"))
    if issubclass(kind, FunctionType):
        return str(value.__module__)
    return str(vars(value if issubclass(kind, type) else kind).get("__module__"))


def _client(module: str) -> str | None:
    """The client that a module is a part of."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((each for each in names if each in _CLIENTS), None)
