"""Libraries by which a function of ``foreachBatch`` may reach other systems.

Nothing is called. What an empty batch does not reach, such as a request for each row, is found so.
"""

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from backfill.runtime.surveying.mentioned_tables import reached

UNSEEN: Final = ("confluent_kafka", "couchbase", "google.cloud", "grpc", "oracledb", "sqlite3")
"""Those that connect or write without Python's audit hooks."""
_SEEN = (
    *("MySQLdb", "aiohttp", "aiokafka", "asyncpg", "azure", "boto3", "botocore", "cassandra"),
    *("clickhouse_connect", "clickhouse_driver", "elasticsearch", "ftplib", "happybase", "hdfs"),
    *("http.client", "httpx", "influxdb", "influxdb_client", "kafka", "mysql", "neo4j"),
    *("opensearchpy", "paho", "paramiko", "pika", "psycopg", "psycopg2", "pymongo", "pymssql"),
    *("pymysql", "pyodbc", "redis", "requests", "smtplib", "snowflake", "socket", "sqlalchemy"),
    *("subprocess", "urllib.request", "urllib3", "valkey"),
)
"""Those whose connections and processes are seen when they begin."""
_CLIENTS = frozenset((*UNSEEN, *_SEEN))


def clients(function: Any) -> tuple[str, ...]:
    """The clients that a function and those of its module that it calls refer to, by module, in
    alphabetical order: as modules, by what is imported from them, or as objects of their classes.
    """
    found: set[str] = set()
    for value in reached(function):
        if issubclass(type(value), FunctionType):
            found.update(filter(None, map(_client, _modules(value))))
    return tuple(sorted(found))


def _modules(function: FunctionType) -> Iterator[str]:
    """Names of the modules that the code of a function refers to."""
    module, pending = function.__globals__, [function.__code__]
    while pending:
        code = pending.pop()
        pending += (each for each in code.co_consts if isinstance(each, CodeType))
        for each in dis.get_instructions(code):
            if each.opname == "IMPORT_NAME":
                yield str(each.argval)
        for found in (_module_of(module[name]) for name in code.co_names if name in module):
            yield found
            yield from (f"{found}.{name}" for name in code.co_names)  # import package.module
    for cell in function.__closure__ or ():
        try:
            yield _module_of(cell.cell_contents)
        except ValueError:  # it has no value yet
            continue


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
