"""Programs that were written for Spark Connect get an ordinary session: a backfill runs them in the
driver, and the server that they name is production's.
"""

import os
from types import ModuleType
from typing import Any

from pyspark.sql import SparkSession

from backfill.api.errors import Problem, UnsupportedProgram
from backfill.runtime.queries.run_state import ProgramRun
from backfill.runtime.switching.late_imports import when_imported

_VARIABLES = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE")
_OPTIONS = ("spark.remote", "spark.api.mode")
_CLIENT = "pyspark.sql.connect.session"
_HANDLERS = ("registerProgressHandler", "removeProgressHandler", "clearProgressHandlers")
"""What only tells the client how far its queries are."""


def stay_in_driver(run: ProgramRun) -> None:
    """Leaves out servers of Spark Connect, from now on. Sessions of the client itself are refused,
    since their queries would run on production's server.
    """
    for name in _HANDLERS:
        if hasattr(SparkSession, name):
            setattr(SparkSession, name, _nothing)
    # called whenever an option is set, by remote() as well
    setattr(SparkSession.Builder, "_validate_startup_urls", forget_server)  # noqa: B010
    forget_server(SparkSession.Builder())

    def refuse(*_: object, **__: object) -> SparkSession:
        message = "starts a session of Spark Connect's client, whose queries would run on a server"
        fix = f"import SparkSession from pyspark.sql, not from {_CLIENT}; it may name a remote"
        raise run.refuse(UnsupportedProgram(Problem("the application", message, fix)))

    def change(module: ModuleType) -> None:
        builder: Any = module.SparkSession.Builder
        builder.getOrCreate = builder.create = refuse

    when_imported({_CLIENT}, change)


def forget_server(builder: SparkSession.Builder) -> None:
    """Removes what makes a builder's session one of Spark Connect, also what the program has set as
    variables.
    """
    for name in _OPTIONS:
        builder._options.pop(name, None)
    for name in _VARIABLES:
        os.environ.pop(name, None)


def _nothing(*_: object, **__: object) -> None:
    pass
