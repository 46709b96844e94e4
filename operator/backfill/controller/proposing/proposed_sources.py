"""Which tables stand for the topics that a program reads, and what their columns are for. By names
and columns only: a comment marks what rests on a name alone.
"""

import difflib
import re
from collections.abc import Collection, Mapping

from backfill.controller.proposing.name_matching import normal, rank_of, valid_name
from backfill.controller.proposing.proposed import (
    ARRIVAL_PROPERTY,
    TIMES,
    UNKNOWN_COLUMN,
    UNKNOWN_TABLE,
    Chosen,
    Lake,
    ProposedSource,
)
from backfill.protocol.survey_result import Survey, SurveyedInput

_ARRIVAL = re.compile(r"ingest|arriv|landed|loaded|appended|received|kafka\w*[._]?(ts|time)", re.I)
_PARTITION = re.compile(r"_*((kafka|record)_?)?partition(_id)?", re.I)
_OFFSET = re.compile(r"_*((kafka|record)_?)?offset", re.I)
_TOPICS = {"Topic", "Pattern"}
_NUMBERS = {"long", "integer", "double"}
_KEY = re.compile(r"_+key|(kafka|record|message)_?key|key", re.I)


def source_of(
    read: SurveyedInput, survey: Survey, lake: Lake, written: Collection[str]
) -> ProposedSource:
    """The source for what a program reads. ``written`` are the tables that the program writes."""
    table = _table_of(read, lake, written)
    name = valid_name(read.name.rpartition(".")[2] if read.kind == "Table" else read.name)
    if table.value == UNKNOWN_TABLE:
        todo = "Set this to the column with the arrival time of each row."
        return ProposedSource(name, read, table, Chosen(UNKNOWN_COLUMN, todo=(todo,)))
    columns = lake.columns(table.value)
    value = _value_column(read, columns)
    events = _event_columns(read, survey, columns)
    # the program may use all columns of a table; its event time is not the time of arrival
    whole = read.kind == "Table" or (read.kind == "Named" and not read.fields)
    used = set(events) if whole else {each.lower() for each in read.fields}
    arrival, unit = _said(lake.arrival_column(table.value), columns) or _arrival_column(
        columns, {each.lower() for each in used}, events, value
    )
    kafka = {} if read.kind == "Table" else _record_columns(columns, used)
    event = next((each for each in events if each != arrival.value), None)
    numbers = () if value is not None else _times_as_numbers(read, columns)
    return ProposedSource(name, read, table, arrival, unit, kafka, value, event, numbers)


def _times_as_numbers(read: SurveyedInput, columns: Mapping[str, str]) -> tuple[str, ...]:
    kinds = {name.lower(): kind for name, kind in columns.items()}
    return tuple(
        name
        for name, kind in read.fields.items()
        if read.value == "Json" and kind in _NUMBERS and kinds.get(name.lower()) in TIMES
    )


def _table_of(read: SurveyedInput, lake: Lake, written: Collection[str]) -> Chosen[str]:
    if read.kind == "Table":
        return Chosen(read.name, ("The program streams from this table.",))
    if read.table is not None:
        return Chosen(
            read.table, ("The program's configuration specifies this table as the history.",)
        )
    if read.kind == "Pattern":
        return _table_of_topics(read, lake, written)
    return _table_of_topic(read, lake, written)


def _table_of_topics(topics: SurveyedInput, lake: Lake, written: Collection[str]) -> Chosen[str]:
    """The one table that has the fields that the program reads of topics that match a pattern."""
    others = [table for table in lake.names if table not in written and topics.fields]
    fitting = [table for table in others if not _missing(topics, lake.columns(table))]
    if len(fitting) == 1:
        return Chosen(fitting[0], ("The only table with the fields that the program reads.",))
    todo = "Set this to the table with the history of a topic that the pattern matches."
    if fitting:
        todo += f" Tables with the fields that the program reads: {', '.join(fitting[:9])}."
    return Chosen(UNKNOWN_TABLE, todo=(todo,))


def _table_of_topic(topic: SurveyedInput, lake: Lake, written: Collection[str]) -> Chosen[str]:
    """The table with a topic's name and the fields that the program reads."""
    named = sorted(
        (rank, table)
        for table in lake.names
        if table not in written and (rank := rank_of(topic.name, table)) is not None
    )
    missing = {table: _missing(topic, lake.columns(table)) for _, table in named}
    fitting = [(rank, table) for rank, table in named if not missing[table]]
    best = [table for rank, table in fitting if rank == fitting[0][0]]
    if len(best) == 1:
        why = _why_table(topic, best[0], lake)
        return Chosen(best[0], (why,), _written_otherwise(topic, lake.columns(best[0])))
    if best:
        names = ", ".join(best)
        todo = f"Several tables match the name of topic {topic.name}: {names}. Choose one."
        return Chosen(UNKNOWN_TABLE, todo=(todo,))
    if named:
        lacks = "; ".join(
            f"{table} has a matching name, but lacks {', '.join(missing[table])}"
            for _, table in named
        )
        todo = f"Set this to the table with the history of topic {topic.name}. {lacks}."
        return Chosen(UNKNOWN_TABLE, todo=(todo,))
    taken = sorted(each for each in written if rank_of(topic.name, each) is not None)
    but = f" but {', '.join(taken)}, which the program writes," if taken else ""
    todo = (
        f"Set this to the table with the history of topic {topic.name}. No table{but} has a"
        " matching name."
    )
    others = sorted((each for each in lake.names if each not in written), reverse=True)
    last = {table.rpartition(".")[2]: table for table in others}
    near = difflib.get_close_matches(normal(topic.name), list(last), n=3, cutoff=0.5)
    if near:
        todo += f" Similar names: {', '.join(last[each] for each in near)}."
    return Chosen(UNKNOWN_TABLE, todo=(todo,))


def _why_table(topic: SurveyedInput, table: str, lake: Lake) -> str:
    if (column := _value_column(topic, lake.columns(table))) is not None:
        return (
            f"The table matches the topic's name, and its column {column} contains the record"
            " values."
        )
    if topic.fields:
        count = len(topic.fields)
        fields = "the field" if count == 1 else f"all {count} fields"
        return f"The table matches the topic's name, and has {fields} that the program reads."
    return (
        "The table matches the topic's name. How the program decodes values could not be"
        " determined, so the columns were not compared."
    )


def _missing(topic: SurveyedInput, columns: Mapping[str, str]) -> list[str]:
    """Fields that the program reads and a table lacks."""
    if _value_column(topic, columns) is not None:
        return []
    there = {each.lower() for each in columns}
    return [each for each in topic.fields if each.lower() not in there]


def _written_otherwise(topic: SurveyedInput, columns: Mapping[str, str]) -> tuple[str, ...]:
    """What to change where columns differ from fields of values in upper and lower case. JSON is
    written in the case that the program decodes.
    """
    if topic.value == "Json":
        return ()
    lower = {each.lower(): each for each in columns}
    found = [
        f"{lower[name.lower()]} for {name}"
        for name in topic.fields
        if name not in columns and name.lower() in lower
    ]
    if not found:
        return ()
    todo = f"Some columns differ from the program's fields in case: {', '.join(found)}."
    why = "Avro is case-sensitive, so no values would be found: rename the columns."
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
    there = {name.lower(): name for name, kind in columns.items() if kind in TIMES}
    fields = [
        name
        for query in survey.queries
        for watermark in query.watermarks
        if watermark.inputs == (read.name,)
        for name in watermark.fields
        if read.kind not in _TOPICS or name in read.fields or "." in name
    ]
    return list(dict.fromkeys(there[each.lower()] for each in fields if each.lower() in there))


def _said(column: str | None, columns: Mapping[str, str]) -> tuple[Chosen[str], str | None] | None:
    """The column that the table's properties name, and its unit if that is needed."""
    if column is None:
        return None
    kind = columns.get(column)
    if kind in TIMES:
        return Chosen(column, (f"The table's property {ARRIVAL_PROPERTY} names it.",)), None
    if kind == "long":
        todo = "Check that this column, which the table's property names, has milliseconds."
        return Chosen(column, todo=(todo,)), "ms"
    todo = f"The table's property {ARRIVAL_PROPERTY} names {column}, which is no column with times."
    return Chosen(UNKNOWN_COLUMN, todo=(todo,)), None


def _arrival_column(
    columns: Mapping[str, str], used: Collection[str], events: list[str], value: str | None
) -> tuple[Chosen[str], str | None]:
    """The column with the time at which rows arrived, and its unit if that is needed. Of a table
    with the values of records, a column ``timestamp`` is Kafka's.
    """
    times = [
        name
        for name, kind in columns.items()
        if kind in TIMES and name.lower() not in used and name.lower().split(".")[0] not in used
    ]
    named = [name for name in times if _ARRIVAL.search(name)]
    if len(times) == 1:
        of_record = value is not None and times[0].rpartition(".")[2].lower() == "timestamp"
        if named or of_record:
            why = "The arrival time: the only time column that the program does not use."
            return Chosen(times[0], (why,)), None
        why = "The only time column that the program does not use."
        todo = "Check that this is the arrival time: its name does not suggest it."
        return Chosen(times[0], (why,), (todo,)), None
    if len(named) == 1:
        others = ", ".join(name for name in times if name != named[0])
        return Chosen(
            named[0], (f"The arrival time, judging by its name. Other time columns: {others}.",)
        ), None
    if times:
        todo = f"Check that this is the arrival time. Candidates: {', '.join(times)}."
        return Chosen((named or times)[0], todo=(todo,)), None
    longs = [name for name, kind in columns.items() if kind == "long" and _ARRIVAL.search(name)]
    if longs:
        todo = "Check that this is the arrival time in milliseconds; if not, correct timestampUnit."
        return Chosen(longs[0], todo=(todo,)), "ms"
    todo = "Set this to the column with the arrival time of each row."
    if events:
        todo += (
            f" None was found. {events[0]} is the event time; use it only if rows arrive in that"
            " order."
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
