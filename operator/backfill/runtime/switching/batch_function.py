"""The function that an application gives to ``foreachBatch``: what it writes of a batch goes into
the branches of the outputs, each batch exactly once.

Rows are written into data files when the function writes a DataFrame, and committed after it has
returned: all rows of a batch for an output together. If the driver is killed between the commits of
two outputs, Spark runs the batch again, and an output that has it already is left as it is.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property

from py4j.protocol import Py4JError
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from backfill.api.errors import BadInput, Problem, ResultLost, RunFailed, UnsupportedProgram
from backfill.api.output import Output, PublishMode
from backfill.api.spec import Effect
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.null_columns import Spellings
from backfill.outputs.staging import Holds, StagedBatch, lost
from backfill.runtime.batch.span_writing import write
from backfill.runtime.catalyst import analyzed, columns_with_values, kind_of, nodes_of
from backfill.runtime.queries.logical_plan import check_static_tables
from backfill.runtime.queries.run_state import OutputWrites, Run
from backfill.runtime.queries.step_gate import StepGate
from backfill.runtime.session_conf import session_zone
from backfill.runtime.sink import (
    SinkSettings,
    SinkWriter,
    WrittenFiles,
    check_schema,
    settings_for,
    staged_batch,
)
from backfill.runtime.switching.field_spellings import field_spellings
from backfill.runtime.switching.kafka_records import record_rows
from backfill.runtime.switching.kafka_rows import check_decoded_in_function
from backfill.runtime.switching.late_writes import (
    PATIENCE_SECONDS,
    BatchThreads,
    lost_rows,
    record_lost_rows,
)
from backfill.runtime.switching.program_lines import program_line
from backfill.runtime.switching.stream_matching import (
    deliver_instead,
    is_left_out,
    last_part,
    match_write,
    may_have_table,
    same_place,
    without_partitions,
)

_WRITE = "or write the rows with DataFrames to the table of an output; "
_INSTEAD: dict[Effect, str] = {
    "Connections": _WRITE,
    "ForeachPartition": _WRITE,
    "Jvm": "or write or merge the rows with DataFrames or spark.sql into an output's table; ",
}
"""What does the same and can be redirected, as far as that can be known."""
_WAIT = "let the function wait for its threads"
_current: ContextVar["BatchInProgress | None"] = ContextVar("backfill_batch", default=None)
_in_progress: set["BatchInProgress"] = set()
_latest: dict["BatchFunction", "RedirectedBatch"] = {}
"""The last batch of each function, also after it is over."""


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Where a DataFrame is written, as the application describes it."""

    place: str
    """Table, topic or path."""
    how: str
    """The call, for messages."""
    by_position: bool = False
    """Whether columns count by their position, not by their names."""
    keys: tuple[str, ...] = ()
    """Columns by which rows replace those of earlier batches; empty if they are added."""
    records: bool = False
    """Whether rows become records of Kafka."""
    topic: str | None = None
    """The topic of all records; None where a column says it."""
    replaces: bool = False
    """Whether rows replace all those of earlier batches."""
    problem: Problem | None = None
    """Why the rows cannot be redirected to an output; None if they can."""
    transaction: tuple[str, int] | None = None
    """Application and version by which Delta Lake recognizes a write that it has already made."""

    @property
    def holds(self) -> Holds:
        """What its rows are."""
        return "Changes" if self.keys else "Result" if self.replaces else "Rows"


class BatchInProgress:
    """A batch for which the application's function runs, as code that sees the function's calls
    knows it.
    """

    redirects = True
    """Whether what it writes goes elsewhere."""

    def __init__(self, frame: DataFrame, query: str, called: str):
        """``called`` is the name of the query or, if it has none, of its function."""
        self.called = called
        self.parts = BatchThreads()
        """What runs in other threads."""
        self._query = query
        self._session = frame.sparkSession._jsparkSession
        self._frame = frame

    def write(self, frame: DataFrame, destination: WriteTarget) -> None:
        """Does what is done instead of writing the rows of a DataFrame.

        Raises:
            BadInput: they cannot be redirected.
        """
        raise NotImplementedError

    def part(self) -> AbstractContextManager[None]:
        """Lets jobs of this thread, which may be another one than the batch's, read its rows."""
        raise NotImplementedError

    def takes(self, place: str) -> bool:
        """Whether a table, topic or path is an output, or is left out."""
        raise NotImplementedError

    def allows(self, effect: Effect) -> bool:
        """Whether the Backfill allows what the function does besides writing DataFrames."""
        raise NotImplementedError

    def refuse(self, error: BadInput) -> BadInput:
        """Refuses something, even if the function catches the error. Returns it, to be raised, with
        the line of the program.
        """
        line = program_line()
        located = [replace(each, message=f"{each.message}{line}") for each in error.problems]
        return self._end(type(error)(located))

    def _end(self, error: BadInput) -> BadInput:
        """Ends the function because of an error. Returns it, to be raised."""
        raise NotImplementedError

    def refuse_effect(self, effect: Effect, what: str) -> BadInput:
        """Refuses something that a backfill cannot set apart from production. Returns the error,
        to be raised.
        """
        message = f"foreachBatch {what}, which a backfill cannot isolate from production"
        fix = (
            f"{deliver_instead(self._query)}; {_INSTEAD.get(effect, '')}or list the query"
            f" {self._query} in spec.ignoredQueries to leave it out; or add {effect} to"
            " spec.allowedEffects to let it happen at once, again with each batch"
        )
        return self.refuse(UnsupportedProgram(Problem("", message, fix)))

    def is_of(self, spark: SparkSession) -> bool:
        """Whether a session is that of the batch, which is the query's own."""
        return bool(self._session.equals(spark._jsparkSession))


class DeliveredBatch(BatchInProgress):
    """A batch that is delivered: whatever is done with it is done for real."""

    redirects = False

    def __init__(self, frame: DataFrame, called: str):
        super().__init__(frame, called, called)

    def part(self) -> AbstractContextManager[None]:
        """Lets threads of the function do what it may."""
        return within(self)

    def takes(self, place: str) -> bool:
        """No place is taken."""
        return False

    def allows(self, effect: Effect) -> bool:
        """Everything is allowed."""
        return True

    def is_of(self, spark: SparkSession) -> bool:
        """No other function runs meanwhile."""
        return True


class RedirectedBatch(BatchInProgress):
    """A batch whose rows go into the branches of outputs."""

    def __init__(self, function: "BatchFunction", frame: DataFrame, number: int):
        super().__init__(frame, function.query, function.called)
        self._function = function
        self._number = number
        self._files: dict[str, list[WrittenFiles]] = defaultdict(list)
        self._versions: dict[tuple[str, str], int] = {}
        """By output and application, the last version that was written."""
        self._lock = threading.Lock()
        self._refused: BadInput | None = None

    def write(self, frame: DataFrame, destination: WriteTarget) -> None:
        """Writes the rows of a DataFrame into data files of the output that it is for.

        Raises:
            BadInput: there is none, or the rows do not fit its table.
            ResultLost: the batch was committed already.
        """
        with not_the_function(), self.parts.write() as in_time:
            try:
                branch = self._function.branch(destination)
                if branch is None:
                    return
                if self._has(branch.output.name, destination):
                    return
                if not in_time:
                    now = _latest[self._function]
                    if now is not self and now.made(frame):  # by a thread of an earlier batch
                        now.write(frame, destination)
                        return
                    raise self._function.lose(_late(destination, self._number))
                with self.part():
                    self._function.compare(frame, self._frame, destination)
                    written = branch.write(frame, destination, self._number)
            except BadInput as error:
                raise self.refuse(error) from None
            with self._lock:
                if destination.replaces:
                    self._files[branch.output.name] = written
                else:
                    self._files[branch.output.name] += written
                if destination.transaction is not None:
                    application, version = destination.transaction
                    self._versions[branch.output.name, application] = version

    def _has(self, output: str, destination: WriteTarget) -> bool:
        """Whether this batch has written a transaction, or a later one of its application."""
        if destination.transaction is None:
            return False
        application, version = destination.transaction
        with self._lock:
            known = self._versions.get((output, application))
        return known is not None and version <= known

    @contextmanager
    def part(self) -> Iterator[None]:
        """Lets jobs of this thread, which may be another one than the batch's, read its rows."""
        announced = self._function.gate.announced(self._frame.sparkSession, self._number)
        present = batch_in_progress()
        with not_the_function(), announced, within(present):
            yield

    def takes(self, place: str) -> bool:
        """Whether a table, topic or path is an output, or is left out."""
        with not_the_function():
            return self._function.takes(place)

    def allows(self, effect: Effect) -> bool:
        """Whether the Backfill allows what the function does besides writing DataFrames."""
        return effect in self._function.run.settings.allowed_effects

    def _end(self, error: BadInput) -> BadInput:
        """Ends the run."""
        self._refused = error
        return self._function.run.refuse(error)

    def made(self, frame: DataFrame) -> bool:
        """Whether a DataFrame is made of the batch's rows."""
        mine = rows_of(self._frame)
        return bool(mine) and mine <= rows_of(frame)

    def close(self, patience_seconds: float) -> tuple[Mapping[str, list[WrittenFiles]], bool]:
        """What was written, by output, and whether all threads and tasks of the function have ended
        in time. Nothing more may be written.

        Args:
            patience_seconds: how long they may write nothing.

        Raises:
            BadInput: something was refused.
        """
        ended = self.parts.close(patience_seconds, self._function.run.over)
        if self._refused is not None:
            raise self._refused
        return self._files, ended


def rows_of(frame: DataFrame) -> set[int]:
    """IDs of the rows in Spark that a DataFrame is made of. Those of each batch are others."""
    leaves = nodes_of(analyzed(frame))
    return {int(each.rdd().id()) for each in leaves if kind_of(each) == "LogicalRDD"}


def batch_in_progress() -> BatchInProgress | None:
    """The batch whose function this thread runs; None elsewhere, and where this product does
    something on behalf of the function.
    """
    return _current.get()


def delivering() -> bool:
    """Whether this thread runs a function for which nothing is redirected."""
    batch = batch_in_progress()
    return batch is not None and not batch.redirects


def batch_of(spark: SparkSession) -> BatchInProgress | None:
    """The batch that something is done in: that of this thread, else that of the session, which may
    be over.
    """
    batch = _current.get()
    if batch is not None:
        return batch
    with not_the_function():
        known = (*tuple(_in_progress), *tuple(_latest.values()))
        return next((each for each in known if each.is_of(spark)), None)


def batch_beside() -> BatchInProgress | None:
    """A batch whose function runs while this thread, which is not the main one, belongs to none:
    the function may be waiting for what it does. None if no function runs.
    """
    if threading.current_thread() is threading.main_thread():
        return None
    return next(iter(tuple(_in_progress)), None)


def unknown_thread(what: str) -> UnsupportedProgram:
    """The error for a thread that may be at work for a function."""
    return UnsupportedProgram(
        Problem(
            "",
            f"{what} in a thread that cannot be attributed to a batch of foreachBatch",
            "do it in the function's own thread, or in threads that it starts with threading or a"
            " ThreadPoolExecutor",
        )
    )


@contextmanager
def within(batch: BatchInProgress | None) -> Iterator[None]:
    """Makes what this thread does a part of a batch, or of none."""
    token = _current.set(batch)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def running(batch: BatchInProgress) -> Iterator[None]:
    """Makes what this thread does the function of a batch."""
    _in_progress.add(batch)
    try:
        with within(batch):
            yield
    finally:
        _in_progress.discard(batch)


def not_the_function() -> AbstractContextManager[None]:
    """For what this product does itself."""
    return within(None)


class BatchFunction:
    """What a query does with each of its batches: runs the application's function, and commits what
    it has written.
    """

    def __init__(
        self,
        function: Callable[[DataFrame, int], None],
        query: str,
        called: str,
        run: Run,
        gate: StepGate,
        *,
        complete: bool = False,
        records: Mapping[int, tuple[str, ...]] | None = None,
    ):
        """Finds the outputs that earlier attempts have written, and the one that is named as the
        query is ``called``: by its name or, if it has none, by its function. ``complete`` is
        whether each batch has the whole result. ``records`` says, by place, which columns of a
        batch are records of Kafka, and of which sources.

        Raises:
            BadInput: the table of an output cannot be loaded, or its branch holds something else.
            ResultLost: rows of earlier batches came too late.
        """
        self.run = run
        self._function = function
        self.query = query
        self.called = called
        self.gate = gate
        self._complete = complete
        self._records = records or {}
        self._compared: set[str] = set()
        """Places for which it has decoded what records have."""
        self._patience_seconds = PATIENCE_SECONDS
        lost_before = lost_rows(run.settings.checkpoint_workspace)
        if lost_before is not None:
            raise run.lose(lost_before)
        self._lock = threading.Lock()
        self._branches: dict[str, _Branch] = {}
        self._reported = {before.output for before in run.tracker.before if before.name == query}
        self._catalogs = Catalogs()
        for output in run.settings.outputs:
            if output.publish.mode is PublishMode.DELIVER:
                continue
            branch = self._open(output)
            named = called == output.name and not run.writers.get(output.name)
            if named or branch.last_batch is not None:
                run.writes(query, output.name)
                self._branches[output.name] = branch

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that it has written so far, in this attempt or before."""
        return tuple(self._branches)

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Runs the function for a batch, and commits what it has written.

        Raises:
            Exception: what the function raises.
            BadInput: the function does what a backfill cannot redirect.
            ResultLost: what was staged of an output no longer exists.
            RunFailed: the run or Spark has ended meanwhile. A function that catches errors may have
                returned without the rows that it could not write, and Spark runs the batch again.
        """
        with self.gate.open(frame.sparkSession, number):
            self._run_batch(frame, number)

    def _run_batch(self, frame: DataFrame, number: int) -> None:
        batch = _latest[self] = RedirectedBatch(self, frame, number)
        with running(batch):
            self._function(frame, number)
            with not_the_function():
                files, ended = batch.close(self._patience_seconds)
        if not ended:
            self._patience_seconds /= 2
        if self.run.over.is_set() or _has_ended(frame):
            raise RunFailed(f"Spark has ended while the query {self.query} wrote batch {number}")
        self._commit(number, files)

    def compare(self, frame: DataFrame, batch: DataFrame, destination: WriteTarget) -> None:
        """Checks which static tables it reads and, for the first rows that it writes to a place,
        what it decodes of a batch.

        Raises:
            UnsupportedProgram: it decodes fields that the records do not have, or reads a static
                table as it is now.
        """
        check_static_tables(frame, self.run.tracker.header.inputs.static_tables)
        if destination.place in self._compared:
            return
        if self._records:
            found = check_decoded_in_function(
                frame, rows_of(batch), self._records, self.run.settings
            )
            self.run.tracker.warn(self.query, found)
        self._compared.add(destination.place)

    def lose(self, error: ResultLost) -> ResultLost:
        """Ends the run because the staged result lacks rows, and with it every later attempt.
        Returns the error, to be raised.
        """
        try:
            record_lost_rows(self.run.settings.checkpoint_workspace, error)
        finally:
            self.run.lose(error)
        return error

    def takes(self, place: str) -> bool:
        """Whether a table, topic or path is an output, or is left out."""
        if may_have_table(place, self.run.settings.outputs):
            return True  # also if it is unknown whose: then it is refused where it is written
        try:
            match_write(place, "", self.called, self.run.settings.outputs)
        except UnsupportedProgram:
            return self._left_out(place)
        return True

    def branch(self, destination: WriteTarget) -> "_Branch | None":
        """The branch that rows for a destination go to; None if they are left out.

        Raises:
            BadInput: there is none.
        """
        settings, place = self.run.settings, without_partitions(destination.place)
        if self._left_out(place):
            return None
        output = match_write(place, destination.how, self.called, settings.outputs)
        if destination.problem is not None:
            raise UnsupportedProgram(destination.problem)
        if destination.replaces and not self._complete:
            raise replaces_each_batch(destination)
        if place != destination.place:
            raise _a_partition(destination, place)
        if may_have_table(place, (output,)):  # which another place with the output's name is not
            place = output.table
        with self._lock:
            branch = self._branches.get(output.name)
            if branch is None:
                branch = self._branches[output.name] = self._open(output)
        with self.run.output_writes[output.name].lock:
            others = self.run.writes(self.query, output.name)
            if others and destination.holds != "Rows":
                raise _also_replaced(output, self.query, others[0])
            branch.is_for(place, destination)
        return branch

    def _left_out(self, place: str) -> bool:
        settings = self.run.settings
        return is_left_out(place, settings.ignored_queries, settings.outputs)

    def finish(self) -> None:
        """Stages outputs that nothing has written, without rows, once all queries have committed
        everything.
        """
        for output in self.run.settings.outputs:
            if not self.run.writers.get(output.name):
                self.run.writes(self.query, output.name)
                with self._lock:
                    self._branches[output.name] = self._open(output)
        self._commit(self.run.tracker.steps, {})

    def _commit(self, number: int, files: Mapping[str, list[WrittenFiles]]) -> None:
        for name, branch in tuple(self._branches.items()):
            known = name in self._reported
            branch.commit(number, files.get(name, []), written_before=known)
            self._reported.add(name)
            self.run.tracker.wrote(self.query, name)

    @cached_property
    def _spellings(self) -> Spellings:
        return field_spellings(self.run.settings)

    def _open(self, output: Output) -> "_Branch":
        table = self._catalogs.load_table(output.table, "spec.outputs")
        settings = settings_for(table, self.run.settings, output, self.query, self._spellings)
        return _Branch(output, table, settings, self.query, self.run.output_writes[output.name])


def _has_ended(frame: DataFrame) -> bool:
    """Whether Spark was stopped, or is gone."""
    try:
        return bool(frame.sparkSession.sparkContext._jsc.sc().isStopped())
    except (AttributeError, OSError, Py4JError):  # the first one if the program has stopped it
        return True


class _Branch:
    """The branch of an output that a function writes."""

    def __init__(
        self,
        output: Output,
        table: Table,
        settings: SinkSettings,
        query: str,
        written: OutputWrites,
    ):
        """``written`` is how queries write the output, also others than this one."""
        self.output = output
        self._table = table
        self._settings = settings
        self._sink = SinkWriter(settings)
        self._query = query
        self._written = written
        self._continued = False
        self._columns: set[str] = set()

    @property
    def last_batch(self) -> int | None:
        """Number of the query's last batch; None if it has staged none."""
        part = self._sink.part()
        return None if part is None else part.batch_id

    def is_for(self, place: str, destination: WriteTarget) -> None:
        """Checks that only one place is written through this output, and in one way.

        Raises:
            UnsupportedProgram: another one was written before, or in another way; or the output has
                other keys.
        """
        records, keys, holds = destination.records, destination.keys, destination.holds
        known = self._written.place or place
        if not same_place(known, place):
            raise _two_places(self.output, known, place)
        if self._written.records not in (None, records):
            raise _rows_and_records(self.output, place)
        if keys and {key.lower() for key in keys} != {key.lower() for key in self.output.keys}:
            raise _other_keys(self.output, place, keys)
        before = self._written.holds
        staged = None if before is not None else self._sink.staged()
        if staged is not None and (staged.rows or staged.rows_outside_window):
            mixed = staged.changes != (holds == "Changes")
        else:
            mixed = before not in (None, holds)
        if mixed:
            raise _in_two_ways(self.output, place)
        self._written.place, self._written.records, self._written.holds = known, records, holds

    def write(self, frame: DataFrame, destination: WriteTarget, number: int) -> list[WrittenFiles]:
        """Writes rows into data files.

        Raises:
            UnsupportedProgram: they do not fit the table.
        """
        if destination.by_position:
            names = [field.name for field in self._table.schema().fields]
            if len(names) != len(frame.columns):
                raise _other_number(self.output, destination, len(names), len(frame.columns))
            frame = frame.toDF(*names)
        if destination.records:
            what = f"foreachBatch, with {destination.how},"
            schema = self._table.schema()
            frame = record_rows(frame, destination.topic, self.output, schema, what)
        zone = session_zone(frame.sparkSession)
        check_schema(frame.schema, self._table, self.output, zone)
        changes = destination.keys and SinkWriter(self._settings, batch=number, holds="Changes")
        written, _ = write(frame, changes or self._sink)
        if not self._sink.decoding_is_known:
            self._columns.update(columns_with_values(frame))
        return written

    def commit(self, number: int, written: list[WrittenFiles], *, written_before: bool) -> None:
        """Commits what was written of a batch, unless the branch has it.

        Raises:
            ResultLost: earlier batches are not in the branch any more.
        """
        query, spec_id = self._query, self._sink.spec_id
        if not self._continued and number > 0 and self.last_batch is None:
            if written_before:
                raise lost(self.output.table, self._settings.result)
            self._sink.stage(StagedBatch(query, number - 1, (), spec_id, 0, first=0))
        self._continued = True
        holds = (self._written.holds if written else None) or "Rows"
        self._sink.stage(
            staged_batch(query, number, spec_id, written, holds=holds), tuple(self._columns)
        )


def _late(destination: WriteTarget, number: int) -> ResultLost:
    return ResultLost(
        f"foreachBatch writes to {destination.place} ({destination.how}) in a thread that is still"
        f" running after the function has returned; batch {number} is committed without these rows,"
        f" so the result lacks them: {_WAIT}, then delete the Backfill and create it again"
    )


def _also_replaced(output: Output, query: str, other: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "spec.outputs",
            f"two queries write the output {output.name} ({output.table}), {other} and {query}, and"
            f" {query} merges or overwrites, so it is unknown whose rows replace the other's",
            "combine their rows in one query, or list one of them in spec.ignoredQueries and run"
            " another Backfill for it",
        )
    )


def _a_partition(destination: WriteTarget, place: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "",
            f"foreachBatch writes to {destination.place} ({destination.how}), the directory of a"
            " partition, whose column is not in the rows",
            f"write to {place}, with that column in the rows",
        )
    )


def _two_places(output: Output, known: str, place: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "spec.outputs",
            f"the application writes both {known} and {place}, and the output {output.name}"
            " matches the name of both",
            "add an output for each, with its table, or list one in spec.ignoredQueries",
        )
    )


def _rows_and_records(output: Output, place: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "spec.outputs",
            f"the application writes both rows and records for Kafka to {place}, which has the name"
            f" of the output {output.name}, so its table would receive both",
            f"add an output named {last_part(place)} with a table of records, and give the output"
            " of the other rows another name",
        )
    )


def _other_keys(output: Output, place: str, keys: tuple[str, ...]) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "spec.outputs",
            f"foreachBatch merges into {place} by {', '.join(keys)}, but the keys of output"
            f" {output.name} are {', '.join(output.keys) or 'not given'}",
            f"set keys: [{', '.join(keys)}] in output {output.name}",
        )
    )


def _in_two_ways(output: Output, place: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "",
            f"the application writes {place} in more than one way (append, merge, overwrite), so it"
            f" is unknown which rows of output {output.name} replace which",
            "make it use only one of them in a backfill",
        )
    )


def replaces_each_batch(destination: WriteTarget) -> UnsupportedProgram:
    """The error for a batch of new rows that replaces those of earlier ones."""
    place, how = destination.place, destination.how
    return UnsupportedProgram(
        Problem(
            "",
            f"foreachBatch overwrites {place} with each batch ({how}), but the batches of its query"
            " only have new or changed rows: in the end there would be those of the last one, which"
            " depend on when production started its batches",
            'append (mode("append")), merge by keys, or start the query with'
            ' outputMode("complete"), whose batches have the whole result; or'
            f" {deliver_instead('the query')}; or list {last_part(place)} in spec.ignoredQueries to"
            " leave these writes out",
        )
    )


def _other_number(
    output: Output, destination: WriteTarget, wanted: int, given: int
) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "",
            f"foreachBatch writes {given} columns by position to {destination.place}"
            f" ({destination.how}), but the table {output.table} has {wanted}",
            "select the table's columns in the table's order",
        )
    )
