"""``writeStream`` in a backfill. Queries are matched with the outputs of the resource, and write
into their branches.
"""

import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from backfill.api.errors import BadInput, UnsupportedProgram
from backfill.api.output import Output, PublishMode
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.delivered_batches import make_table
from backfill.outputs.staging import Holds, Part
from backfill.planning.plan import PlanHeader, read_header
from backfill.planning.workspace import Workspace
from backfill.runtime.batch.batch_or_stream import (
    Choice,
    choose,
    order_warnings,
    stream_traits,
    streamed,
)
from backfill.runtime.batch.prepare_query import SpanOutput, prepare_spans
from backfill.runtime.batch.time_reach import Bounded
from backfill.runtime.catalyst import SPARK_CATALOG
from backfill.runtime.changes.micro_batches import redirect
from backfill.runtime.hand_off.hand_over import check_query
from backfill.runtime.hand_off.repeated_records import sources_read_twice
from backfill.runtime.queries.clock_dependence import comparison_with_clock
from backfill.runtime.queries.earlier_attempts import checkpoint_of, committed_steps
from backfill.runtime.queries.logical_plan import (
    check_static_tables,
    columns_used,
    keeps_state_in_one_partition,
    sources_read,
)
from backfill.runtime.queries.run_state import (
    ContinuedQuery,
    ProductionSink,
    ProgramRun,
    Run,
    StartedQuery,
    identity,
)
from backfill.runtime.queries.step_gate import StepGate
from backfill.runtime.queries.tracker import Traits
from backfill.runtime.session_conf import in_session
from backfill.runtime.sink import SinkWriter, sink_settings
from backfill.runtime.spark_versions import properties
from backfill.runtime.switching.batch_function import BatchFunction
from backfill.runtime.switching.deliver_outputs import (
    check_restored,
    columns_of_table,
    for_each_row,
    write_batch,
)
from backfill.runtime.switching.field_spellings import field_spellings
from backfill.runtime.switching.kafka_records import record_rows
from backfill.runtime.switching.kafka_rows import (
    as_decoded,
    missing_record_columns,
    records_of_query,
)
from backfill.runtime.switching.program_lines import program_line
from backfill.runtime.switching.query_handle import BatchQuery, LeftOutQuery, SwitchedQuery
from backfill.runtime.switching.side_effects import install_effects
from backfill.runtime.switching.state_store import StateStore, choose_state_store, may_keep_state
from backfill.runtime.switching.stream_matching import (
    FILE_FORMATS,
    WHY_A_STREAM,
    WHY_DELIVERED,
    Target,
    check_function,
    check_shared,
    check_sink,
    check_together,
    delivered_output,
    match_output,
    name_by_checkpoint,
    name_of_function,
    name_of_query,
    named_twice,
    place_of,
    reason_to_leave_out,
)

_log = logging.getLogger(__name__)

_HOLDS: dict[str, Holds] = {"update": "Changes", "complete": "Result"}
"""What the rows of a query are in other output modes than append."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A query of the application that is to be started."""

    target: SpanOutput
    header: PlanHeader
    sources: Set[str]
    """The sources that it reads."""
    used: Mapping[str, set[str]]
    """By source, the columns that it uses."""
    checkpoint: Workspace
    committed: int
    """Number of steps that it has committed as a stream."""
    choice: Choice
    """How it is run."""


@dataclass(frozen=True, slots=True)
class CapturedFunction:
    """A query of the application that is to be started, and whose batches a function writes."""

    name: str
    called: str
    """Its name, or without one what it is called by its function."""
    function: Callable[[DataFrame, int], None]
    output_mode: str
    sources: Set[str]
    """The sources that it reads."""
    used: Mapping[str, set[str]]
    """By source, the columns that it uses."""
    traits: Traits


@dataclass(frozen=True, slots=True)
class CapturedDelivery:
    """A query of the application that is to be started, and whose batches are delivered."""

    name: str
    output: Output
    header: PlanHeader
    sources: Set[str]
    """The sources that it reads."""
    used: Mapping[str, set[str]]
    """By source, the columns that it uses."""
    choice: Choice
    """How it is run."""


class ReplacedWriter(DataStreamWriter):
    """A stream writer that only keeps what it is called with, and starts something else."""

    def __init__(self, frame: DataFrame, run: ProgramRun):
        super().__init__(frame)
        self._run = run
        self._target = Target()
        self._function: Callable[[DataFrame, int], None] | None = None

    def outputMode(self, outputMode: str) -> DataStreamWriter:
        """Keeps the output mode."""
        return self._with(output_mode=outputMode)

    def format(self, source: str) -> DataStreamWriter:
        """Keeps the format, for messages and to recognise an output by name."""
        return self._with(format=source.lower())

    def option(self, key: str, value: Any) -> DataStreamWriter:
        """Keeps the table, path, topic, type or location of the checkpoint. Servers and credentials
        are production's, and are not used.
        """
        match key.lower():
            case "table" | "path":
                return self._with(table=str(value))
            case "topic":
                return self._with(topic=str(value))
            case "checkpointlocation":
                return self._with(checkpoint=str(value))
            case "type":  # of an output by name; any other query has its format
                return self._with(named_format=value and str(value).lower())
        return self

    def options(self, **options: Any) -> DataStreamWriter:
        """Keeps the table, path or topic."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def partitionBy(self, *cols: Any) -> DataStreamWriter:
        """Ignored: the output table has its own partitioning."""
        return self

    def clusterBy(self, *cols: Any) -> DataStreamWriter:
        """Ignored: the output table has its own layout."""
        return self

    def queryName(self, queryName: str) -> DataStreamWriter:
        """Keeps the query's name."""
        return self._with(query_name=queryName)

    def trigger(self, **kwargs: Any) -> DataStreamWriter:
        """Keeps whether the query ends: here, a batch starts when its step is released."""
        return self._with(ends=bool(kwargs.get("availableNow") or kwargs.get("once")))

    def foreach(self, f: Any) -> DataStreamWriter:
        """Records that the application writes rows with code of its own: ``start`` refuses it."""
        return self._with(row_writer=f"foreach{program_line()}")

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> DataStreamWriter:
        """Keeps the function, whose writes go into branches."""
        self._function = func
        return self

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: Any = None,
        queryName: str | None = None,
        **options: Any,
    ) -> StreamingQuery:
        """Starts what replaces the query."""
        self.options(**options)
        given = {
            "table": path,
            "format": format and format.lower(),
            "output_mode": outputMode,
            "query_name": queryName,
        }
        self._with(**{field: value for field, value in given.items() if value is not None})
        location = self._checkpoint_location()
        if self._function is not None:  # the format does not count, as in Spark
            if self._target.query_name is None:
                called = name_of_function(self._function)
                by_checkpoint = name_by_checkpoint(called, location)
                self._with(query_name=called, by_checkpoint=by_checkpoint)
            self._with(format=None)
        self._with(checkpoint=location)
        if self._run.stopping.is_set():
            raise SystemExit(0)
        settings = self._run.settings
        reason = reason_to_leave_out(self._target, settings.outputs, settings.ignored_queries)
        if reason is not None:
            return self._leave_out(reason)
        try:
            with self._run.starting(), in_session(self._df.sparkSession, self._run.settings):
                return self._replacement()
        except BadInput as error:
            raise self._run.refuse(error) from None

    def toTable(self, tableName: str, *args: Any, **options: Any) -> StreamingQuery:
        """Starts the query. The name of the table is used to find the output."""
        self._with(to_table=True)
        return self.start(tableName, *args, **options)

    def _with(self, **changes: Any) -> DataStreamWriter:
        self._target = replace(self._target, **changes)
        return self

    def _leave_out(self, reason: str) -> StreamingQuery:
        """A query that does nothing. What it would keep in memory is an empty view."""
        _log.info("%s, is left out: %s", self._target, reason)
        query = LeftOutQuery(self._target.query_name, self._run, ends=self._target.ends)
        self._run.left_out(query)
        if self._target.format == "memory" and query.name is not None:
            self._df.sparkSession.createDataFrame([], self._df.schema).createOrReplaceTempView(
                query.name
            )
        return query

    def _checkpoint_location(self) -> str | None:
        """Where Spark would look for the query's checkpoint; None if the program does not say."""
        given, hand_off = self._target, self._run.settings.hand_off
        if given.checkpoint is not None or hand_off is None or given.query_name is None:
            return given.checkpoint
        base = self._df.sparkSession.conf.get("spark.sql.streaming.checkpointLocation", None)
        base = base or hand_off.checkpoint_location
        return f"{base}/{given.query_name}" if base else None

    def _replacement(self) -> StreamingQuery:
        raise NotImplementedError


class SwitchedWriter(ReplacedWriter):
    """A stream writer whose query writes into the branch of the matching output."""

    _run: Run

    def __init__(self, frame: DataFrame, run: Run, listen: Callable[[DataFrame], None]):
        super().__init__(frame, run)
        self._listen = listen
        self._doubtful_times: list[str] = []
        self._row_writer: Any = None
        self._options: dict[str, Any] = {}

    def option(self, key: str, value: Any) -> DataStreamWriter:
        """Keeps all options for a sink to which rows are delivered."""
        self._options[key] = value
        return super().option(key, value)

    def foreach(self, f: Any) -> DataStreamWriter:
        """Keeps what writes rows."""
        self._row_writer = f
        return super().foreach(f)

    def _replacement(self) -> StreamingQuery:
        self._df, self._doubtful_times = as_decoded(self._df, self._run.settings)
        run, unnamed = self._run, self._target.by_checkpoint
        if unnamed is not None:
            self._with(by_checkpoint=run.unused_name(unnamed))
        output = delivered_output(self._target, run.settings.outputs)
        if output is not None:
            return self._start_delivered(output)
        if self._function is not None:
            return self._start_function(self._function)
        output = match_output(self._target, run.settings.outputs, run.writers)
        if output.publish.mode is PublishMode.DELIVER:
            return self._start_delivered(output)
        name = name_of_query(self._target, output)
        records = self._records(output) if self._target.format == "kafka" else None
        if records is not None:
            self._df = records()
        sources, used = self._inputs()
        if records is not None and run.settings.hand_off is not None:
            # it need not matter what is in columns that Kafka ignores, but the state has them
            self._df = records(whole=True)
            used = columns_used(self._df)
        frame = self._df
        sink, place = (
            sink_settings(frame, run.settings, output, name, field_spellings(run.settings)),
            run.settings.outputs.index(output),
        )
        writer = SinkWriter(sink)
        target = SpanOutput(name, output, place, sink, writer, self._staged(writer))
        header = read_header(run.settings.plan_workspace)
        checkpoint = checkpoint_of(identity(name, output.name), run.settings.checkpoint_workspace)
        committed = committed_steps(checkpoint)
        choice = choose(
            run.settings.execution if run.settings.hand_off is None else "Streaming",
            frame,
            target,
            header,
            streamed_steps=committed,
            output_mode=self._target.output_mode,
            records=records is not None,
        )
        self._share(name, output)
        return self._begin(Captured(target, header, sources, used, checkpoint, committed, choice))

    def _start_delivered(self, output: Output) -> StreamingQuery:
        """Starts a query whose batches are staged, and delivered to its own sink once they are
        approved.
        """
        run, target = self._run, self._target
        name = target.by_checkpoint or name_of_query(target, output)
        check_function(name, (), run.settings.execution)
        if self._function is None and self._row_writer is None:
            check_sink(target)
        check_together(target, output)
        sources, used = self._inputs()
        self._share(name, output)
        header = read_header(run.settings.plan_workspace)
        choice = streamed(self._df, name, output, header, WHY_DELIVERED)
        return self._begin_delivered(CapturedDelivery(name, output, header, sources, used, choice))

    def _begin_delivered(self, query: CapturedDelivery) -> StreamingQuery:
        """Starts a query whose batches are staged."""
        run, frame, name, output = self._run, self._df, query.name, query.output
        install_effects()  # threads that the function starts are a part of its call
        make_table(output, run.settings.result(output.name), columns_of_table(frame))
        check_restored(frame, output)
        sink = sink_settings(frame, run.settings, output, name, field_spellings(run.settings))
        writer, place = SinkWriter(sink), run.settings.outputs.index(output)
        checkpoint = checkpoint_of(identity(name, output.name), run.settings.checkpoint_workspace)
        captured = Captured(
            SpanOutput(name, output, place, sink, writer, self._staged(writer)),
            query.header,
            query.sources,
            query.used,
            checkpoint,
            committed_steps(checkpoint),
            query.choice,
        )
        run.sinks[output.name] = self._production_sink()
        return self._stream(captured, holds="Batches", output_mode=self._target.output_mode)

    def _production_sink(self) -> ProductionSink:
        """What production's query does with a batch."""
        target, frame, mode = self._target, self._df, self._target.output_mode.lower()
        if self._function is not None:
            called = f"the function {target.query_name}"
            return ProductionSink(called, self._function, frame, mode)
        if self._row_writer is not None:
            return ProductionSink("foreach", partial(for_each_row, self._row_writer), frame, mode)
        write = partial(write_batch, target, self._options)
        return ProductionSink(f"the sink ({target.format})", write, frame, mode)

    def _share(self, name: str, output: Output) -> None:
        """Records that the query writes an output, which other queries may write, too."""
        run, target = self._run, self._target
        if problems := list(named_twice(name, [each.name for each in run.queries])):
            raise UnsupportedProgram(problems)
        writes = run.output_writes[output.name]
        with writes.lock:
            if others := run.writes(name, output.name):
                check_shared(target, output, others[0], writes)
            writes.place = writes.place or place_of(target, output)
            writes.records = target.format == "kafka"
            writes.holds = _HOLDS.get(target.output_mode.lower(), "Rows")

    def _staged(self, writer: SinkWriter) -> Part | None:
        """What earlier attempts of the query have staged."""
        return writer.part()

    def _records(self, output: Output) -> Callable[..., DataFrame]:
        """Makes the rows of the output's table of the records that the query sends."""
        schema = Catalogs().load_table(output.table, "spec.outputs").schema()
        what = f"{self._target},"
        return partial(record_rows, self._df, self._target.topic, output, schema, what)

    def _start_function(self, function: Callable[[DataFrame, int], None]) -> StreamingQuery:
        run = self._run
        called = self._target.query_name
        assert called is not None, "it has its function's name at least"
        unnamed = self._target.by_checkpoint
        others = {query.name for query in run.queries} if unnamed is None else ()
        check_function(called, others, run.settings.execution)
        sources, used = self._inputs()
        name = unnamed or called
        traits = Traits(comparison_with_clock(self._df), "Streaming", WHY_A_STREAM)
        return self._begin_function(
            CapturedFunction(
                name, called, function, self._target.output_mode, sources, used, traits
            )
        )

    def _inputs(self) -> tuple[set[str], dict[str, set[str]]]:
        """The sources of the query, and by source the columns that it uses."""
        sources, used = self._sources_read(), columns_used(self._df)
        if missing := missing_record_columns(self._run.settings.sources, used):
            raise UnsupportedProgram(missing)
        return sources, used

    def _begin_function(self, query: CapturedFunction) -> StreamingQuery:
        """Starts a query whose batches a function writes."""
        run, name = self._run, query.name
        install_effects()
        complete = query.output_mode.lower() == "complete"
        records = records_of_query(self._df)
        gate = StepGate(run, self._df.sparkSession, name, query.used)
        function = BatchFunction(
            query.function, name, query.called, run, gate, complete=complete, records=records
        )
        checkpoint = checkpoint_of(identity(name, None), run.settings.checkpoint_workspace)
        self._check_hand_off(name, None, query.sources)
        self._listen(self._df)
        writer = self._plain(name, checkpoint).outputMode(query.output_mode).foreachBatch(function)
        run.tracker.add_function(
            name,
            dict.fromkeys(sorted(query.sources), committed_steps(checkpoint)),
            query.traits,
            function.outputs,
        )
        run.tracker.warn(name, self._warnings())
        started = self._started_stream(writer, gate, name, None, checkpoint)
        changes = query.output_mode.lower() != "append"
        run.started(replace(started, finish=function.finish, changes=changes))
        return started.view

    def _begin(self, query: Captured) -> StreamingQuery:
        """Starts a query that may be run."""
        found = query.choice.found
        return self._stream(query) if found is None else self._run_by_spans(query, found)

    def _stream(
        self, query: Captured, *, holds: Holds | None = None, output_mode: str | None = None
    ) -> StreamingQuery:
        """Starts a stream, in the output mode of the choice and with what it says of rows unless
        others are given.
        """
        run, target, choice = self._run, query.target, query.choice
        mode = output_mode or choice.output_mode or "append"
        self._check_hand_off(target.query, target.output.name, query.sources)
        self._listen(self._df)
        plain = self._plain(target.query, query.checkpoint)
        gate = StepGate(run, self._df.sparkSession, target.query, query.used)
        writer = redirect(plain.outputMode(mode), target.sink, gate, holds or choice.holds)
        run.tracker.add(
            target.query,
            target.output.name,
            dict.fromkeys(sorted(query.sources), query.committed),
            stream_traits(self._df, choice),
        )
        run.tracker.warn(target.query, self._warnings())
        started = self._started_stream(
            writer, gate, target.query, target.output.name, query.checkpoint
        )
        run.started(replace(started, changes=mode.lower() != "append"))
        return started.view

    def _warnings(self) -> list[str]:
        """What may be wrong in the result of a stream."""
        order = order_warnings(self._df, self._target.output_mode, self._run.tracker.header)
        return [*self._doubtful_times, *order]

    def _check_hand_off(self, name: str, output: str | None, sources: Set[str]) -> None:
        run = self._run
        if run.settings.hand_off is None:
            return
        header = read_header(run.settings.plan_workspace)
        query = ContinuedQuery(
            identity=identity(name, output),
            name=name,
            location=self._target.checkpoint or "",
            sources=tuple(sorted(sources)),
            writes_files=self._function is None and self._writes_files(),
            stateful=may_keep_state(self._df, header),
            undivided=keeps_state_in_one_partition(self._df),
            ends=self._target.ends,
            repeats=bool(
                sources_read_twice(
                    self._df,
                    (
                        each
                        for each in run.settings.sources
                        if each.name in sources and not each.kafka.identifies_records
                    ),
                )
            ),
        )
        check_query(run, self._df.sparkSession, query)

    def _writes_files(self) -> bool:
        """Whether Spark's file sink writes the query in production: also where it is a table of
        Spark's own catalog, and has no format.
        """
        spark, target = self._df.sparkSession, self._target
        if target.writes_files or not target.to_table or target.format is not None:
            return target.writes_files
        *above, _ = (target.table or "").replace("`", "").split(".")
        catalog = spark.catalog.currentCatalog()
        if above[:1] == [SPARK_CATALOG]:
            catalog = above.pop(0)
        known = {SPARK_CATALOG, *above[:1]}
        return (
            len(above) < 2
            and catalog == SPARK_CATALOG
            and not any(spark.conf.get(f"spark.sql.catalog.{each}", None) for each in known)
            and str(spark.conf.get("spark.sql.sources.default")).lower() in FILE_FORMATS
        )

    def _plain(self, name: str, checkpoint: Workspace) -> DataStreamWriter:
        """Spark's own writer of the query, without a sink."""
        plain = DataStreamWriter(self._df).queryName(name)
        return plain.option("checkpointLocation", checkpoint.for_spark)

    def _started_stream(
        self,
        writer: DataStreamWriter,
        gate: StepGate,
        name: str,
        output: str | None,
        checkpoint: Workspace,
    ) -> StartedQuery:
        """The query of a writer, started."""
        run, frame, spark = self._run, self._df, self._df.sparkSession
        header = read_header(run.settings.plan_workspace)
        store = (
            choose_state_store(frame, header, checkpoint, len(run.settings.outputs))
            if run.settings.hand_off is None
            else StateStore("")  # production's, which continues with the state
        )
        if store.reason:
            _log.info("the query %s keeps its state in %s", name, store.reason)
        with store.in_session(spark), gate.announced(spark, committed_steps(checkpoint)):
            handle, started_with = writer.start(), properties(spark)
        view = SwitchedQuery(handle._jsq, run, self._done(name), ends=self._target.ends)

        def again() -> StreamingQuery | None:
            with in_session(spark, run.settings), store.in_session(spark):
                if properties(spark) != started_with:  # with others it would be another query
                    return None
                with gate.announced(spark, committed_steps(checkpoint)):
                    return view.start_again(writer)

        return StartedQuery(name, output, checkpoint.for_spark, handle, frame, view, again=again)

    def _run_by_spans(self, query: Captured, found: Bounded) -> StreamingQuery:
        run, frame, target = self._run, self._df, query.target
        mode = self._target.output_mode.lower()
        runner = prepare_spans(
            run,
            frame,
            target,
            query.header,
            found,
            used=query.used,
            complete=mode == "complete",
        )
        run.tracker.warn(target.query, self._doubtful_times)
        done = self._done(target.query)
        view = BatchQuery(self._target.query_name, run, done, ends=self._target.ends)
        run.started(
            StartedQuery(
                target.query,
                target.output.name,
                "",
                runner,
                frame,
                view,
                runner,
                changes=mode != "append",
            )
        )
        runner.start()
        return view

    def _done(self, query: str) -> Callable[[], bool]:
        tracker = self._run.tracker
        return partial(tracker.reached, query, tracker.flushed)

    def _sources_read(self) -> set[str]:
        """The sources of the query.

        Only queries that are not run may read a topic without a source.
        """
        check_static_tables(self._df, self._run.tracker.header.inputs.static_tables)
        try:
            return sources_read(self._df)
        except UnsupportedProgram as error:
            raise UnsupportedProgram(self._run.unreplaced or error.problems) from None
