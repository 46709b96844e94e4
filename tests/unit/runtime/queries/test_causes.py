"""Errors as Spark words them, and what is told of them."""

import json
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkTypeError

from backfill.api.conditions import Reason
from backfill.api.errors import (
    BackfillError,
    BadInput,
    InvalidPlanInput,
    Problem,
    ResultLost,
    first_line,
)
from backfill.runtime.queries.failure_causes import (
    cause_of,
    fails_on_rows,
    is_lasting,
    lasting_cause,
    lines_of_text,
    started_too_slowly,
)
from backfill.runtime.queries.run_state import unsupported
from cases import cases

WORKER = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "app.py", line 3, in price
    return total / number
           ~~~~~~^~~~~~~~
ZeroDivisionError: division by zero
 SQLSTATE: 38000"""
CHAINED = """Traceback (most recent call last):
  File "reading.py", line 1, in open
FileNotFoundError: no such file

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "reading.py", line 2, in read
BackfillError: a.parquet cannot be read:
  no such file
 SQLSTATE: 38000"""
PLAIN = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== DataFrame =="
UNRESOLVED = "[UNRESOLVED_COLUMN] `att` cannot be resolved. Did you mean `at`? SQLSTATE: 42703"
JAVA = """An error occurred while calling o500.start.
: java.io.IOException: mkdir of file:/work/checkpoints/summary failed
\tat org.apache.hadoop.fs.FileSystem.primitiveMkdir(FileSystem.java:1414)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.nio.file.AccessDeniedException: /work/checkpoints
\t... 5 more
"""


@cases(
    ("told", "cause"),
    {
        "what a function raised, without its stack": (
            WORKER,
            "ZeroDivisionError: division by zero",
        ),
        "the last of a chain, with all its lines": (
            CHAINED,
            "BackfillError: a.parquet cannot be read:\n  no such file",
        ),
        "Spark's own words as they are": (PLAIN, PLAIN),
        "not the query's plan": (
            f"{PLAIN}\n=== Streaming Query ===\nIdentifier: pages of plan",
            PLAIN,
        ),
        "not the plan that could not be analysed": (
            f"{UNRESOLVED};\n'Project ['att]\n+- ~StreamingDataSourceV2ScanRelation[at#1]\n",
            UNRESOLVED,
        ),
        "all there is where a stack has no end": (
            "Traceback (most recent call last):\n  File ",
            "Traceback (most recent call last):\n  File ",
        ),
        "what Java threw and what caused it, without its stack": (
            JAVA,
            (
                "java.io.IOException: mkdir of file:/work/checkpoints/summary failed\n"
                "Caused by: java.nio.file.AccessDeniedException: /work/checkpoints"
            ),
        ),
        "nothing where there is nothing": ("", ""),
    },
)
def test_what_is_told_of_an_error(told: str, cause: str) -> None:
    assert cause_of(Exception(told)) == cause


class Captured(Exception):  # noqa: N818
    """Looks like what PySpark makes of an exception of Java, which has another one as its cause."""

    def __init__(self, told: str, cause: Exception | None = None):
        super().__init__(told)
        self._cause = cause


def test_what_lies_at_the_bottom_of_an_error_is_told_once() -> None:
    full = Captured("java.io.IOException: No space left on device\n\tat Files.write")
    state = Captured("[CANNOT_COMMIT] No commit.", Captured("Cannot write 7.zip", full))
    assert (
        cause_of(state)
        == "[CANNOT_COMMIT] No commit.\nCaused by: java.io.IOException: No space left on device"
    )
    assert cause_of(Captured("java.io.IOException: No space left on device", full)) == first_line(
        full
    )


@pytest.mark.parametrize(
    ("told", "so"),
    [
        (WORKER, True),
        (PLAIN, True),
        (CHAINED, False),
        (JAVA, False),
        (UNRESOLVED, False),
        (WORKER.replace("ZeroDivisionError", "requests.exceptions.ConnectionError"), False),
        (WORKER.replace("ZeroDivisionError", "ConnectionError"), False),
        (WORKER.replace("return total / number", "raise ValueError(1) from error"), False),
        (WORKER.replace("return total / number", "raise ValueError(1) from None"), True),
        (WORKER.replace("ZeroDivisionError", "JSONDecodeError"), False),
        (WORKER.replace("ZeroDivisionError: division by zero", "decimal.InvalidOperation"), True),
        (
            WORKER.replace("ZeroDivisionError", f"{PySparkTypeError.__module__}.PySparkTypeError"),
            True,
        ),
        (WORKER.replace("ZeroDivisionError: division by zero", "AssertionError"), True),
    ],
)
def test_errors_of_the_program_and_of_servers_are_distinguished(told: str, so: bool) -> None:
    assert fails_on_rows(RuntimeError(told)) is so


def test_the_lines_of_the_program_are_found_in_a_traceback_of_another_process() -> None:
    told = WORKER.replace(
        '  File "app.py"', '  File "pyspark/util.py", line 1, in wrapper\n    f()\n  File "app.py"'
    )
    assert lines_of_text(RuntimeError(told)) == [
        '  File "app.py", line 3, in price',
        "    return total / number",
    ]
    assert lines_of_text(RuntimeError(JAVA)) == []


@pytest.mark.parametrize("name", ["databricks", "databricks.connect"])
def test_an_import_of_databricks_connect_that_fails_names_what_to_use(name: str) -> None:
    error = ModuleNotFoundError(f"No module named {name!r}", name=name)
    assert "get the session from SparkSession.builder of pyspark.sql" in cause_of(error)


def test_a_python_process_that_started_too_slowly_is_named_and_worth_another_attempt() -> None:
    """Spark waits ten seconds for it and cannot be told otherwise. In a task it tries again by
    itself; in the driver the query ends.
    """
    waited = "Timed out while waiting for the Python worker to connect back"
    timeout = Captured(
        f"java.net.SocketTimeoutException: {waited}\n\tat PythonWorkerFactory.create"
    )
    said = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."
    cause = cause_of(Captured(f"{said} SQLSTATE: XXKST\n=== Streaming Query ===\nplan", timeout))
    assert cause.startswith(said)
    assert cause.endswith(f"Caused by: java.net.SocketTimeoutException: {waited}")
    assert lasting_cause(cause) is None
    assert started_too_slowly(cause)
    assert not started_too_slowly("[STREAM_FAILED] Query terminated with exception: No space left.")


@pytest.mark.parametrize(
    ("error", "lasting"),
    [
        (
            InvalidPlanInput(Problem("", "snapshot 5 has expired")),
            (Reason.INVALID_INPUT, "snapshot 5 has expired"),
        ),
        (ResultLost("the branch was dropped"), (Reason.RESULT_LOST, "the branch was dropped")),
        (BackfillError("catalog lake cannot be opened: timed out"), None),
    ],
    ids=["the tables are wrong", "the result is gone", "anything else"],
)
def test_what_another_attempt_would_not_mend(
    error: Exception, lasting: tuple[Reason, str] | None
) -> None:
    assert lasting_cause(f"{type(error).__module__}.{type(error).__name__}: {error}") == lasting


@pytest.mark.parametrize(
    "away", [True, False], ids=["a catalog that does not answer", "a table that does not fit"]
)
def test_a_program_is_not_unsupported_because_something_is_away(away: bool) -> None:
    outcome = unsupported(BadInput(Problem("spec.outputs", "it is so", may_pass=away)))
    assert (outcome.phase, outcome.reason) == (
        "Failed",
        "ApplicationFailed" if away else "UnsupportedProgram",
    )


def _java(*kinds: str) -> Exception:
    """Looks like PySpark's error for one of Java, and those that caused it."""
    thrown = None
    for kind in reversed(kinds):
        cause, named = thrown, SimpleNamespace(getName=lambda kind=kind: kind)
        thrown = SimpleNamespace(getClass=lambda n=named: n, getCause=lambda c=cause: c)
    error = Exception(*kinds)
    error.java_exception = thrown  # type: ignore[attr-defined]
    return error


def _during(first: Exception, second: Exception) -> Exception:
    second.__context__ = first
    return second


SPARK, CATALYST = "org.apache.spark.SparkException", "org.apache.spark.sql.catalyst"


@cases(
    ("error", "lasting"),
    {
        "a module that is not there": (ModuleNotFoundError("No module named 'delta'"), True),
        "a name": (NameError("name 'sprak' is not defined"), True),
        "a missing variable": (KeyError("BROKERS"), True),
        "an argument of Spark": (PySparkTypeError("not a column"), True),
        "a class that Spark cannot load": (
            _java(SPARK, "java.lang.ClassNotFoundException"),
            True,
        ),
        "a table": (_java("org.apache.spark.sql.catalyst.ExtendedAnalysisException"), True),
        "a table, as analysis reports it": (_java("org.apache.spark.sql.AnalysisException"), True),
        "a connection": (ConnectionRefusedError(111, "refused"), False),
        "a time-out": (TimeoutError(), False),
        "a full disk": (OSError(28, "No space left on device"), False),
        "what another library raises": (json.JSONDecodeError("Expecting value", "", 0), False),
        "what says nothing": (RuntimeError("not now"), False),
        "a metastore that does not answer": (
            _java(f"{CATALYST}.analysis.NoSuchTableException", "java.net.ConnectException"),
            False,
        ),
        "a job of Spark's": (_java(SPARK), False),
        "what follows from a connection": (
            _during(ConnectionResetError(), NameError("name 'answer' is not defined")),
            False,
        ),
    },
)
def test_an_attempt_is_not_repeated_for_errors_of_the_program_only(
    error: Exception, lasting: bool
) -> None:
    assert is_lasting(error) == lasting
