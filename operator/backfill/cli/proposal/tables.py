"""Which tables stand for the topics that a program reads and for what it writes, and what their
columns are for. By names and columns only: whatever rests on a name alone is said to.
"""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Protocol, TypeVar

from backfill.protocol.survey import Survey, SurveyedInput, SurveyedQuery

UNKNOWN_TABLE = "TODO.namespace.table"
"""Stands for a table that was not found, with a number behind it for further ones. No catalog has
this name.
"""
UNKNOWN_COLUMN = "TODO"
_TIMES = ("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_ARRIVAL = re.compile(r"ingest|arriv|landed|loaded|appended|received|kafka\w*[._]?(ts|time)", re.I)
_PARTITION = re.compile(r"_*((kafka|record)_?)?partition(_id)?", re.I)
_OFFSET = re.compile(r"_*((kafka|record)_?)?offset", re.I)
_KEY = re.compile(r"_+key|(kafka|record|message)_?key|key", re.I)
_Named = TypeVar("_Named", "ProposedSource", "ProposedOutput")
_INVALID_IN_NAME = re.compile(r"[^-_.A-Za-z0-9]+")


class Lake(Protocol):
    """The tables of the catalogs."""

    @property
    def names(self) -> Collection[str]:
        """All of them, as ``catalog.namespace.table``."""

    def find(self, written: str) -> str | None:
        """The table that a program means, which may leave out the catalog."""

    def columns(self, name: str) -> Mapping[str, str]:
        """The columns of a table, nested ones with dots, with their types in Iceberg."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A value of the manifest, with what is to be said of it."""

    value: str
    why: tuple[str, ...] = ()
    todo: tuple[str, ...] = ()
    """What a person has to decide or to look up."""


@dataclass(frozen=True, slots=True)
class ProposedSource:
    """A source of the manifest."""

    name: str
    read: SurveyedInput
    table: Chosen
    timestamp_column: Chosen
    timestamp_unit: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    value_column: str | None = None
    """Column with the values of records as they were, where the table has them undecoded."""
    event_column: str | None = None
    """The column that is the program's event time."""

    @property
    def found(self) -> bool:
        """Whether its table and the time of arrival are known."""
        return self.table.value != UNKNOWN_TABLE and self.timestamp_column.value != UNKNOWN_COLUMN


@dataclass(frozen=True, slots=True)
class ProposedOutput:
    """An output of the manifest."""

    name: str
    query: SurveyedQuery
    table: Chosen
    timestamp_column: Chosen | None
    """None where no column tells the time of a row."""
    keys: Chosen | None = None
    """Columns with commas between them; None where they are unknown and need not be known."""

    @property
    def found(self) -> bool:
        """Whether its table is known."""
        return not self.table.value.startswith(UNKNOWN_TABLE)


@dataclass(frozen=True, slots=True)
class Proposal:
    """All that the manifest says of the program and its tables."""

    survey: Survey
    sources: tuple[ProposedSource, ...]
    outputs: tuple[ProposedOutput, ...]
    ignored: tuple[Chosen, ...]
    """Queries that are not run, with the reason."""
    unsolved: tuple[str, ...] = ()
    """What a person has to decide about queries, each in a sentence."""

    @property
    def found(self) -> bool:
        """Whether every table that is needed was found."""
        return all(each.found for each in self.sources) and all(each.found for each in self.outputs)


def propose(survey: Survey, lake: Lake) -> Proposal:
    """The sources and outputs for a program."""
    outputs, ignored, unsolved = _outputs(survey, lake)
    written = {output.table.value for output in outputs}
    sources = _uniquely_named([_source(each, survey, lake, written) for each in survey.inputs])
    return Proposal(survey, tuple(sources), tuple(outputs), tuple(ignored), tuple(unsolved))


# Sources


def _source(
    read: SurveyedInput, survey: Survey, lake: Lake, written: Collection[str]
) -> ProposedSource:
    table = _table_of(read, lake, written)
    name = _name(read.name.rpartition(".")[2] if read.kind == "Table" else read.name)
    if table.value == UNKNOWN_TABLE:
        todo = "The column with the time at which a row arrived."
        return ProposedSource(name, read, table, Chosen(UNKNOWN_COLUMN, todo=(todo,)))
    columns = lake.columns(table.value)
    value = _value_column(read, columns)
    events = _event_columns(read, survey, columns)
    # of a table, all columns are there for the program; what it takes the time from is not arrival
    whole = read.kind == "Table" or (read.kind == "Named" and not read.fields)
    used = set(events) if whole else {each.lower() for each in read.fields}
    arrival, unit = _arrival_column(columns, {each.lower() for each in used}, events, value)
    kafka = {} if read.kind == "Table" else _record_columns(columns, used)
    event = next((each for each in events if each != arrival.value), None)
    return ProposedSource(name, read, table, arrival, unit, kafka, value, event)


def _table_of(read: SurveyedInput, lake: Lake, written: Collection[str]) -> Chosen:
    if read.kind == "Table":
        return Chosen(read.name, ("The program streams from this table.",))
    if read.table is not None:
        return Chosen(read.table, ("The program's configuration names its history.",))
    return _table_of_topic(read, lake, written)


def _table_of_topic(topic: SurveyedInput, lake: Lake, written: Collection[str]) -> Chosen:
    """The table with a topic's name and the fields that the program reads."""
    named = sorted(
        (rank, table)
        for table in lake.names
        if table not in written and (rank := _rank(topic.name, table)) is not None
    )
    missing = {table: _missing(topic, lake.columns(table)) for _, table in named}
    fitting = [(rank, table) for rank, table in named if not missing[table]]
    best = [table for rank, table in fitting if rank == fitting[0][0]]
    if len(best) == 1:
        why = _why_table(topic, best[0], lake)
        return Chosen(best[0], (why,), _written_otherwise(topic, lake.columns(best[0])))
    if best:
        todo = f"Several tables have the name of topic {topic.name}: {', '.join(best)}. Choose one."
        return Chosen(UNKNOWN_TABLE, todo=(todo,))
    if named:
        lacks = "; ".join(
            f"{table} has its name, but lacks {', '.join(missing[table])}" for _, table in named
        )
        todo = f"The table that keeps the rows of topic {topic.name}. {lacks}."
        return Chosen(UNKNOWN_TABLE, todo=(todo,))
    todo = f"The table that keeps the rows of topic {topic.name}: none has its name."
    last = {table.rpartition(".")[2]: table for table in sorted(lake.names, reverse=True)}
    near = difflib.get_close_matches(_normal(topic.name), list(last), n=3, cutoff=0.5)
    if near:
        todo += f" Similar names: {', '.join(last[each] for each in near)}."
    return Chosen(UNKNOWN_TABLE, todo=(todo,))


def _why_table(topic: SurveyedInput, table: str, lake: Lake) -> str:
    if (column := _value_column(topic, lake.columns(table))) is not None:
        return f"It has the topic's name, and {column} with the values of its records."
    if topic.fields:
        count = len(topic.fields)
        fields = "the field" if count == 1 else f"all {count} fields"
        return f"It has the topic's name, and {fields} that the program reads."
    return (
        "It has the topic's name. How the program decodes its values could not be seen, so the"
        " columns were not compared."
    )


def _rank(wanted: str, table: str) -> int | None:
    """How well a table's name is that of a topic or query, the least is best; None: not at all."""
    _, *names = table.split(".")
    full, last = _normal("_".join(names)), _normal(names[-1])
    whole, part = _normal(wanted), _normal(re.split(r"[./]", wanted.rstrip("/"))[-1])
    if whole in {full, last}:
        return 0
    return 1 if part == last else None


def _normal(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _missing(topic: SurveyedInput, columns: Mapping[str, str]) -> list[str]:
    """Fields that the program reads and a table lacks."""
    if _value_column(topic, columns) is not None:
        return []
    there = {each.lower() for each in columns}
    return [each for each in topic.fields if each.lower() not in there]


def _written_otherwise(topic: SurveyedInput, columns: Mapping[str, str]) -> tuple[str, ...]:
    """What to change where columns differ from fields of values in upper and lower case."""
    lower = {each.lower(): each for each in columns}
    found = [
        f"{lower[name.lower()]} for {name}"
        for name in topic.fields
        if name not in columns and name.lower() in lower
    ]
    if not found:
        return ()
    todo = f"Its columns are in another case than the program's fields: {', '.join(found)}."
    why = "JSON and Avro distinguish them, so the program would get no values: rename the columns."
    return (f"{todo} {why}",)


def _value_column(topic: SurveyedInput, columns: Mapping[str, str]) -> str | None:
    """The column with the values of records as they were."""
    lower = {each.lower() for each in columns}
    if topic.kind == "Table" or any(each.lower() in lower for each in topic.fields):
        return None
    return next(
        (
            name
            for name, kind in columns.items()
            if re.fullmatch(r"_*((kafka|record)_?)?value", name, re.I)
            and kind in {"binary", "string"}
        ),
        None,
    )


def _event_columns(read: SurveyedInput, survey: Survey, columns: Mapping[str, str]) -> list[str]:
    """Columns of a table that watermarks of the program are made of."""
    there = {name.lower(): name for name, kind in columns.items() if kind in _TIMES}
    fields = [
        name
        for query in survey.queries
        for watermark in query.watermarks
        if watermark.inputs == (read.name,)
        for name in watermark.fields
        if read.kind != "Topic" or name in read.fields or "." in name
    ]
    return list(dict.fromkeys(there[each.lower()] for each in fields if each.lower() in there))


def _arrival_column(
    columns: Mapping[str, str], used: Collection[str], events: list[str], value: str | None
) -> tuple[Chosen, str | None]:
    """The column with the time at which rows arrived, and its unit if that is needed. Of a table
    with the values of records, a column ``timestamp`` is Kafka's.
    """
    times = [
        name
        for name, kind in columns.items()
        if kind in _TIMES and name.lower() not in used and name.lower().split(".")[0] not in used
    ]
    named = [name for name in times if _ARRIVAL.search(name)]
    if len(times) == 1:
        of_record = value is not None and times[0].rpartition(".")[2].lower() == "timestamp"
        if named or of_record:
            why = "When a row arrived: the table's only time that the program does not use."
            return Chosen(times[0], (why,)), None
        why = "The table's only time that the program does not use."
        todo = "Check that this is when a row arrived: its name does not say so."
        return Chosen(times[0], (why,), (todo,)), None
    if len(named) == 1:
        others = ", ".join(name for name in times if name != named[0])
        return Chosen(named[0], (f"When a row arrived, by its name. Other times: {others}.",)), None
    if times:
        todo = f"Check that this is when a row arrived. There are {', '.join(times)}."
        return Chosen((named or times)[0], todo=(todo,)), None
    longs = [name for name, kind in columns.items() if kind == "long" and _ARRIVAL.search(name)]
    if longs:
        todo = "Check that this is when a row arrived, in milliseconds; correct timestampUnit."
        return Chosen(longs[0], todo=(todo,)), "ms"
    todo = "The column with the time at which a row arrived."
    if events:
        todo += (
            f" None was found. {events[0]} is the event time, which is right only where rows arrive"
            " in its order."
        )
        return Chosen(events[0], todo=(todo,)), None
    return Chosen(UNKNOWN_COLUMN, todo=(todo,)), None


def _record_columns(columns: Mapping[str, str], used: Collection[str]) -> dict[str, str]:
    """The fields of ``kafka`` whose columns the table has, by their names and types."""
    wanted = {
        "partitionColumn": (_PARTITION, {"int", "long"}),
        "offsetColumn": (_OFFSET, {"int", "long"}),
        "keyColumn": (_KEY, {"string", "binary"}),
    }
    found = {}
    for place, (pattern, kinds) in wanted.items():
        names = [
            name
            for name, kind in columns.items()
            if pattern.fullmatch(name.rpartition(".")[2])
            and kind in kinds
            and name.lower() not in used
        ]
        if len(names) == 1:
            found[place] = names[0]
    return found


# Outputs


def _outputs(survey: Survey, lake: Lake) -> tuple[list[ProposedOutput], list[Chosen], list[str]]:
    outputs: list[ProposedOutput] = []
    ignored: list[Chosen] = []
    unsolved: list[str] = []
    for query in survey.queries:
        if (why := _not_an_output(query, lake)) is None:
            for output in _outputs_of(query, lake):
                taken = next((each for each in outputs if _same_table(each, output)), None)
                if taken is None:
                    outputs.append(output)
                elif query is not taken.query:
                    unsolved.append(_second_writer(output, taken))
        elif (name := query.name or query.topic or query.table) is not None:
            ignored.append(Chosen(name, (why,)))
        else:
            unsolved.append(f"{why} Give that query a queryName, and list it in ignoredQueries.")
    return _of_distinct_tables(_uniquely_named(outputs)), ignored, unsolved


def _of_distinct_tables(outputs: Sequence[ProposedOutput]) -> list[ProposedOutput]:
    """The same, in which unknown tables have numbers: two outputs cannot have one table."""
    numbers = chain(("",), (f"_{number}" for number in count(2)))
    return [
        each
        if each.found
        else replace(each, table=replace(each.table, value=f"{UNKNOWN_TABLE}{next(numbers)}"))
        for each in outputs
    ]


def _same_table(one: ProposedOutput, other: ProposedOutput) -> bool:
    return one.found and one.table.value == other.table.value


def _second_writer(output: ProposedOutput, taken: ProposedOutput) -> str:
    return (
        f"{output.name} and {taken.name} write the same table {output.table.value}, and a Backfill"
        " takes one query for each: list one of them in ignoredQueries, and run another Backfill"
        " for it."
    )


def _not_an_output(query: SurveyedQuery, lake: Lake) -> str | None:
    """Why a query can be no output."""
    if query.by_row:
        return (
            "It writes each row with code of its own (foreach), which a backfill cannot set apart"
            " from production."
        )
    if query.format == "kafka" and _table_of_query(query, lake).value == UNKNOWN_TABLE:
        return (
            f"It sends records to the Kafka topic {query.topic}, and no table has its name and the"
            " columns of its records. To keep them, list it as an output with such a table instead."
        )
    return None


def _outputs_of(query: SurveyedQuery, lake: Lake) -> list[ProposedOutput]:
    if query.function is not None:
        found = [lake.find(word) for word in query.mentions if word.count(".") >= 1]
        tables = list(dict.fromkeys(each for each in found if each is not None))
        why = f"The function {query.function} of foreachBatch names this table."
        todo = (
            f"The table that the function {query.function} of foreachBatch writes; if it writes"
            " several, an output for each."
        )
        if not tables:
            return [_output(query.function, query, Chosen(UNKNOWN_TABLE, todo=(todo,)), {})]
        return [
            _output(
                table.rpartition(".")[2],
                query,
                Chosen(table, (why,), ("Check that it writes this table; it may only read it.",)),
                lake.columns(table),
            )
            for table in tables
        ]
    table = _table_of_query(query, lake)
    columns = {} if table.value == UNKNOWN_TABLE else lake.columns(table.value)
    place = query.table or query.topic or "output"
    name = query.name or re.split(r"[./]", place.replace("`", "").rstrip("/"))[-1]
    return [_output(name, query, table, columns)]


def _table_of_query(query: SurveyedQuery, lake: Lake) -> Chosen:
    if query.table is not None and (found := lake.find(query.table)) is not None:
        lacks = _lacks(query, lake.columns(found))
        todo = (f"It lacks {', '.join(lacks)}, which the query writes.",) if lacks else ()
        return Chosen(found, ("The program writes this table.",), todo)
    wanted = [each for each in (query.table, query.topic, query.name) if each is not None]
    ranked = sorted(
        (rank, table)
        for table in lake.names
        for each in wanted
        if (rank := _rank(each, table)) is not None and not _lacks(query, lake.columns(table))
    )
    best = list(dict.fromkeys(table for rank, table in ranked if rank == ranked[0][0]))
    what = query.name or query.table or "a query without a name"
    if len(best) == 1:
        return Chosen(best[0], (f"It has the name of {what}, and all columns of its result.",))
    written = f", which writes {query.table}" if query.table and query.table != what else ""
    wanted_table = f"The Iceberg table for the result of {what}{written}."
    if best:
        return Chosen(UNKNOWN_TABLE, todo=(f"{wanted_table} There are {', '.join(best)}.",))
    names = ", ".join(f"{column.name} {column.type}" for column in query.columns)
    none = f"No table has its name and columns: {names}."
    return Chosen(UNKNOWN_TABLE, todo=(f"{wanted_table} {none}",))


def _lacks(query: SurveyedQuery, columns: Mapping[str, str]) -> list[str]:
    there = {each.lower() for each in columns}
    return [each.name for each in query.columns if each.name.lower() not in there]


def _output(
    name: str, query: SurveyedQuery, table: Chosen, columns: Mapping[str, str]
) -> ProposedOutput:
    return ProposedOutput(
        _name(name), query, table, _time_of_result(query, columns), _keys(query, columns)
    )


def _time_of_result(query: SurveyedQuery, columns: Mapping[str, str]) -> Chosen | None:
    """The column that decides whether a row belongs to the window."""
    there = {name.lower(): name for name, kind in columns.items() if kind in {*_TIMES, "date"}}
    known = [
        (there.get(each.name.lower(), each.name), each)
        for each in query.columns
        if not columns or each.name.lower() in there
    ]
    events = [name for name, each in known if each.is_event_time]
    times = [name for name, each in known if each.type in {"timestamp", "timestamp_ntz", "date"}]
    if len(events) == 1:
        return Chosen(events[0], ("The event time, which decides what belongs to the window.",))
    if events:
        why = f"One of the event times {', '.join(events)}."
        todo = "Check that it says to which time a row belongs."
        return Chosen(events[0], (why,), (todo,))
    if len(times) == 1:
        return Chosen(times[0], ("The only time among the columns of the result.",))
    if times or there:
        todo = (
            "Choose the column that says to which time a row belongs. There are"
            f" {', '.join(times or there.values())}."
        )
        return Chosen((times or list(there.values()))[0], todo=(todo,))
    return None


def _keys(query: SurveyedQuery, columns: Mapping[str, str]) -> Chosen | None:
    by = ", ".join(query.groups_by)
    there = {each.lower(): each for each in columns if "." not in each}
    keys = [there.get(key.lower()) for key in query.keys]
    if keys and all(keys) and query.function is None:
        return Chosen(
            ",".join(filter(None, keys)), (f"What identifies a row: it is grouped by {by}.",)
        )
    if query.groups_by and query.output_mode == "update" and query.function is None:
        todo = f"The columns that identify a row of the table; the query groups by {by}."
        return Chosen(UNKNOWN_COLUMN, todo=(todo,))
    return None


def _name(text: str) -> str:
    """A valid name of a source or output."""
    return _INVALID_IN_NAME.sub("-", text).strip("-_.")[:63].rstrip("-_.") or "unnamed"


def _uniquely_named(each: Sequence[_Named]) -> list[_Named]:
    """The same, in which the second one of a name has a number behind it."""
    found: dict[str, _Named] = {}
    for one in each:
        names = (f"{one.name[:60]}-{number}" for number in count(2))
        name = next(name for name in chain((one.name,), names) if name not in found)
        found[name] = replace(one, name=name)
    return list(found.values())
