"""What the application writes outside of functions of ``foreachBatch``, such as a table that its
main program fills at the start: it is refused, unless the Backfill allows it or leaves it out.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import Column, DataFrame
from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2

from backfill.api.errors import Problem, UnsupportedProgram
from backfill.api.spec import Effect
from backfill.protocol.driver_settings import SETTINGS_VARIABLE
from backfill.runtime.queries.run_state import ProgramRun
from backfill.runtime.spark_versions import MergeIntoWriter
from backfill.runtime.switching.stream_matching import is_left_out, same_table

NO_EFFECT = ("noop", "console")
"""Formats that keep nothing outside the driver."""
PLACES = ("path", "table", "dbtable")
"""Options that say where a DataFrame is written."""
_DESCRIBING = {
    "bucketBy",
    "clusterBy",
    "format",
    "mode",
    "option",
    "options",
    "partitionBy",
    "partitionedBy",
    "sortBy",
    "tableProperty",
    "using",
}
"""Methods of writers in the JVM that write nothing yet."""

_log = logging.getLogger(__name__)


class MainProgram:
    """A program, and what it may do besides its queries."""

    def __init__(self, run: ProgramRun, static: Callable[[], Iterable[str]] = tuple):
        """``static`` gives the names of the static tables."""
        self._run = run
        self._static = static

    def may(self, effect: Effect, what: str, place: str | None = None) -> bool:
        """Whether something may happen for real; False if it is left out.

        Raises:
            UnsupportedProgram: neither; the run has ended.
        """
        settings = self._run.settings
        if place is not None and is_left_out(place, settings.ignored_queries):
            _log.info(
                "skipped, because it is listed in spec.ignoredQueries: the application %s", what
            )
            return False
        if effect not in settings.allowed_effects:
            raise self._run.refuse(UnsupportedProgram(self._problem(effect, what, place)))
        return True

    def has_table(self, name: str) -> bool:
        """Whether a table is one of the Backfill's, which there are."""
        return any(same_table(table, name) for table in self._tables())

    def has_namespace(self, name: str) -> bool:
        """Whether a table of the Backfill is in a namespace, or in one below it."""
        return any(same_table(each, name) for table in self._tables() for each in _around(table))

    def has_catalog(self, name: str) -> bool:
        """Whether a table of the Backfill is in a catalog."""
        return any(table.partition(".")[0] == name for table in self._tables())

    def _tables(self) -> Iterator[str]:
        settings = self._run.settings
        yield from (source.table for source in settings.sources)
        yield from (output.table for output in settings.outputs)
        yield from self._static()

    def _problem(self, effect: Effect, what: str, place: str | None) -> Problem:
        return Problem(
            "",
            f"the application {what} outside of its queries, which a backfill cannot isolate from"
            " production",
            f"skip it in a backfill, where the environment variable {SETTINGS_VARIABLE} is set;"
            + (f" or list {place} in spec.ignoredQueries to leave it out;" if place else "")
            + f" or add {effect} to spec.allowedEffects to let it happen for real",
        )


def _around(table: str) -> list[str]:
    """The namespaces that a table is in, from the outermost one."""
    parts = table.split(".")
    return [".".join(parts[:length]) for length in range(2, len(parts))]


class CheckedWriter(DataFrameWriter):
    """``DataFrame.write`` outside of functions."""

    def __init__(self, frame: DataFrame, program: MainProgram):
        super().__init__(frame)
        self._jwrite: Any = _Checked(self._jwrite, program)


class CheckedWriterV2(DataFrameWriterV2):
    """``DataFrame.writeTo`` outside of functions."""

    def __init__(self, frame: DataFrame, table: str, program: MainProgram):
        super().__init__(frame, table)
        self._jwriter: Any = _Checked(self._jwriter, program, table)


class CheckedMerge(MergeIntoWriter):
    """``DataFrame.mergeInto`` outside of functions."""

    def __init__(self, frame: DataFrame, table: str, condition: Column, program: MainProgram):
        super().__init__(frame, table, condition)
        self._table = table
        self._program = program

    def merge(self) -> None:
        """Merges, if that may happen."""
        if self._program.may("Writes", f"writes to {self._table} (mergeInto)", self._table):
            super().merge()


class _Checked:
    """Stands for a writer in the JVM: what may not happen does not reach it."""

    def __init__(self, writer: JavaObject, program: MainProgram, table: str | None = None):
        self._writer = writer
        self._program = program
        self._table = table
        self._format: str | None = None
        self._mode = ""
        self._options: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            if name in _DESCRIBING:
                self._note(name, args)
                self._writer = getattr(self._writer, name)(*args)
                return self
            if self._may(name, args):
                return getattr(self._writer, name)(*args)
            return None

        return call

    def _note(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "format":
            self._format = args[0].lower()
        elif name == "mode":
            self._mode = args[0].lower()
        elif name == "option":
            self._options[args[0].lower()] = args[1]

    def _may(self, name: str, args: tuple[Any, ...]) -> bool:
        if name == "save" and self._format in NO_EFFECT:
            return True
        place, how = self._place(name, args), f"write.{name}"
        if self._mode == "ignore" and place is not None and self._program.has_table(place):
            return False  # nothing is written to a table that is there
        if self._table is not None:
            how = f"writeTo.{name}"
        elif name == "save" and self._format is not None:
            how = f"write.format({self._format}).save"
        what = f"writes with {how}" if place is None else f"writes to {place} ({how})"
        return self._program.may("Writes", what, place)

    def _place(self, name: str, args: tuple[Any, ...]) -> str | None:
        """Where it writes, as the application says it."""
        if self._table is not None:
            return self._table
        if name == "jdbc":  # after the address, which may have a password
            return str(args[1])
        options = (self._options.get(each) for each in (*PLACES, "topic"))
        return next((str(each) for each in (*args[:1], *options) if each), None)
