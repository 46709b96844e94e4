"""Programs that were written for Spark Connect get an ordinary session: a backfill runs them in the
driver, and the server that they name is production's.
"""

import os
from types import ModuleType

from pyspark.sql import SparkSession, functions, session

from backfill.api.errors import Problem, UnsupportedProgram
from backfill.runtime.queries.run_state import ProgramRun
from backfill.runtime.switching.late_imports import when_imported

_VARIABLES = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE")
_OPTIONS = ("spark.remote", "spark.api.mode")
_CLIENT = "pyspark.sql.connect.client.core"
_FUNCTIONS = "pyspark.sql.connect.functions"
_DATABRICKS = "databricks.connect.session"
_HANDLERS = ("registerProgressHandler", "removeProgressHandler", "clearProgressHandlers")
"""What only tells the client how far its queries are."""


def stay_in_driver(run: ProgramRun) -> None:
    """Leaves out servers of Spark Connect, from now on. Connections of the client itself are
    refused, since its queries would run on production's server.
    """
    for name in _HANDLERS:
        if hasattr(SparkSession, name):
            setattr(SparkSession, name, _nothing)
    # called whenever an option is set, by remote() as well
    setattr(SparkSession.Builder, "_validate_startup_urls", forget_server)  # noqa: B010
    setattr(SparkSession.Builder, "create", _new_session)  # noqa: B010
    # which the package pyspark-connect changes; from Spark 4.0 on
    setattr(session, "default_api_mode", lambda: "classic")  # noqa: B010
    forget_server(SparkSession.Builder())

    def refuse(*_: object, **__: object) -> None:
        message = "connects to a server of Spark Connect, on which its queries would run"
        fix = "get the session from SparkSession.builder of pyspark.sql, which may name a remote"
        raise run.refuse(UnsupportedProgram(Problem("the application", message, fix)))

    def refuse_client(module: ModuleType) -> None:
        module.SparkConnectClient.__init__ = refuse

    def refuse_databricks(module: ModuleType) -> None:
        """Before it has a client, it asks the workspace how to log in."""
        builder = module.DatabricksSession.Builder
        builder.getOrCreate = builder.create = refuse

    when_imported({_CLIENT}, refuse_client)
    when_imported({_DATABRICKS}, refuse_databricks)
    when_imported({_FUNCTIONS}, _with_classic_functions)


def forget_server(builder: SparkSession.Builder) -> None:
    """Removes what makes a builder's session one of Spark Connect, also what the program has set as
    variables.
    """
    for name in _OPTIONS:
        builder._options.pop(name, None)
    for name in _VARIABLES:
        os.environ.pop(name, None)


def _new_session(builder: SparkSession.Builder) -> SparkSession:
    """Before Spark 4.2, its own only makes sessions of Spark Connect."""
    return builder.getOrCreate().newSession()


def _with_classic_functions(module: ModuleType) -> None:
    """The client's own make columns that a session in the driver cannot use."""
    vars(module).update((k, v) for k, v in vars(functions).items() if not k.startswith("_"))


def _nothing(*_: object, **__: object) -> None:
    pass
