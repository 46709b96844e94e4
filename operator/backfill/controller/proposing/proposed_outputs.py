"""Which tables stand for what a program writes, and what their columns are for. By names and
columns only: a comment marks what rests on a name alone.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count

from backfill.api.output import Output
from backfill.controller.proposing.name_matching import normal, rank_of, uniquely_named, valid_name
from backfill.controller.proposing.proposed import (
    TIMES,
    UNKNOWN_COLUMN,
    UNKNOWN_TABLE,
    Chosen,
    Lake,
    Proposal,
    ProposedOutput,
)
from backfill.protocol.survey_result import Survey, SurveyedQuery, SurveyedWrite


def outputs_of(
    survey: Survey, lake: Lake
) -> tuple[list[ProposedOutput], list[Chosen[str]], list[str]]:
    """The outputs, queries that are not run, and what a person has to decide about queries."""
    outputs: list[ProposedOutput] = []
    ignored: list[Chosen[str]] = []
    unsolved: list[str] = []
    for query in survey.queries:
        if (why := _not_an_output(query, lake)) is None:
            for output in _outputs_of(query, lake):
                others = () if output.delivers else outputs
                taken = next((each for each in others if _same_table(each, output)), None)
                if taken is None:
                    outputs.append(output)
                elif query is not taken.query and not _both_append(query, taken.query):
                    unsolved.append(_second_writer(output, taken))
        elif (name := query.name or query.topic or query.table) is not None:
            ignored.append(Chosen(name, (why,)))
        else:
            unsolved.append(f"{why} Give that query a queryName, and list it in ignoredQueries.")
    # the query of a table is found by that as well
    outputs.sort(key=lambda output: output.delivers is None)
    named = [_with_query(output) for output in uniquely_named(outputs)]
    return _of_distinct_tables(named), ignored, unsolved


def with_given(proposal: Proposal, given: Sequence[Output], ignored: Collection[str]) -> Proposal:
    """The proposal in which outputs that a spec lists, by their name or their table, are as it says
    and need no decision, and without those that it ignores.
    """
    known = {key: each for each in given for key in (each.name, each.table)}

    def decided(found: ProposedOutput) -> ProposedOutput:
        wanted = known.get(found.name) or known.get(found.table.value)
        if wanted is None:
            return found
        column = wanted.timestamp_column
        return replace(
            found,
            name=wanted.name,
            table=Chosen(wanted.table),
            timestamp_column=None if column is None else Chosen(column),
            keys=None,
        )

    left = (
        each
        for each in proposal.outputs
        if {each.name, each.table.value, each.table.value.rpartition(".")[2]}.isdisjoint(ignored)
    )
    return replace(proposal, outputs=tuple(map(decided, left)))


def _of_distinct_tables(outputs: Sequence[ProposedOutput]) -> list[ProposedOutput]:
    """The same, with a table of its own for each: two outputs cannot have the same one, nor can an
    output have that of a source.
    """
    taken: set[str] = set()
    found = []
    for each in outputs:
        first = each.table.value if each.found else f"{UNKNOWN_TABLE}_written"
        names = chain((first,), (f"{first}_{number}" for number in count(2)))
        table = next(name for name in names if name not in taken)
        taken.add(table)
        found.append(replace(each, table=replace(each.table, value=table)))
    return found


def _with_query(output: ProposedOutput) -> ProposedOutput:
    """The output, with what to do where its query does not have its name."""
    mode, query = output.delivers, output.query
    if mode is None or valid_name(query.function or query.name or "") == output.name:
        return output
    todo = (f"Give its query the name {output.name} (queryName).",)
    return replace(output, delivers=replace(mode, todo=todo))


def _same_table(one: ProposedOutput, other: ProposedOutput) -> bool:
    return one.found and one.table.value == other.table.value


def _both_append(one: SurveyedQuery, other: SurveyedQuery) -> bool:
    return {one.output_mode, other.output_mode} == {"append"}


def _second_writer(output: ProposedOutput, taken: ProposedOutput) -> str:
    return (
        f"{output.name} and {taken.name} write the same table {output.table.value}, and not both"
        " of them append: list one of them in ignoredQueries, and run another Backfill for it."
    )


def _not_an_output(query: SurveyedQuery, lake: Lake) -> str | None:
    """Why a query can be no output."""
    if query.format == "kafka" and _table_of_query(query, lake).value == UNKNOWN_TABLE:
        return (
            f"It sends records to the Kafka topic {query.topic}, and no table has that name and"
            " columns for the records. To keep or to send them, list the query as an output with"
            " such a table or with publish.mode Deliver instead."
        )
    return None


def _outputs_of(query: SurveyedQuery, lake: Lake) -> list[ProposedOutput]:
    if query.by_row or query.problems or (query.clients and not query.writes):
        return [_delivered(query, lake)]
    if query.function is not None:
        todo = (
            f"Set this to the table that the foreachBatch function {query.function} writes; if it"
            " writes several, add an output for each."
        )
        unknown = _output(query.function, query, Chosen(UNKNOWN_TABLE, todo=(todo,)), {})
        return [_written(query, write, lake) for write in query.writes] or [unknown]
    table = _table_of_query(query, lake)
    columns = {} if table.value == UNKNOWN_TABLE else lake.columns(table.value)
    place = query.table or query.topic or "output"
    name = query.name or re.split(r"[./]", place.replace("`", "").rstrip("/"))[-1]
    return [_output(name, query, table, columns)]


def _delivered(query: SurveyedQuery, lake: Lake) -> ProposedOutput:
    """The output of a query whose own code has effects outside of Spark."""
    name = query.function or query.name or "rows"
    catalog = next((table.partition(".")[0] for table in lake.names), UNKNOWN_COLUMN)
    table = Chosen(
        f"{catalog}.backfill_staged.{normal(name) or 'rows'}",
        ("Holds the rows until they are delivered. It is created if it does not exist.",),
    )
    why = "Calls the program's own code with the rows once they are approved"
    found = [each.message for each in query.problems]
    if query.clients:
        found.append(f"the function may use {', '.join(query.clients)}")
    mode = Chosen("Deliver", (f"{why}: {'; '.join(found)}.",))
    return replace(_output(name, query, table, {}), delivers=mode)


def _written(query: SurveyedQuery, write: SurveyedWrite, lake: Lake) -> ProposedOutput:
    """The output for what a function writes."""
    what = f"what the foreachBatch function {query.function} writes to {write.place}"
    found = lake.find(write.place)
    named = [each for each in lake.names if rank_of(write.place, each) is not None]
    if found is not None:
        table = Chosen(found, ("The program's function writes this table.",))
    elif len(named) == 1:
        table = Chosen(named[0], (f"The table matches the name of {what}.",))
    else:
        table = Chosen(UNKNOWN_TABLE, todo=(f"Set this to the Iceberg table for {what}.",))
    columns = lake.columns(table.value) if table.value != UNKNOWN_TABLE else {}
    name = re.split(r"[./]", write.place.replace("`", "").rstrip("/"))[-1]
    output = _output(name, query, table, columns)
    if not write.keys:
        return output
    why = f"The columns that identify a row: {write.how} compares them."
    return replace(output, keys=Chosen(write.keys, (why,)))


def _table_of_query(query: SurveyedQuery, lake: Lake) -> Chosen[str]:
    if query.table is not None and (found := lake.find(query.table)) is not None:
        lacks = _lacks(query, lake.columns(found))
        todo = (f"The table lacks {', '.join(lacks)}, which the query writes.",) if lacks else ()
        return Chosen(found, ("The program writes this table.",), todo)
    wanted = [each for each in (query.table, query.topic, query.name) if each is not None]
    ranked = sorted(
        (rank, table)
        for table in lake.names
        for each in wanted
        if (rank := rank_of(each, table)) is not None and not _lacks(query, lake.columns(table))
    )
    best = list(dict.fromkeys(table for rank, table in ranked if rank == ranked[0][0]))
    what = query.name or query.table or query.topic or "a query without a name"
    if len(best) == 1:
        return Chosen(
            best[0], (f"The table matches the name of {what}, and has all columns of its result.",)
        )
    written = f", which writes {query.table}" if query.table and query.table != what else ""
    wanted_table = f"Set this to the Iceberg table for the result of {what}{written}."
    if best:
        return Chosen(UNKNOWN_TABLE, todo=(f"{wanted_table} Candidates: {', '.join(best)}.",))
    names = ", ".join(f"{column.name} {column.type}" for column in query.columns)
    none = f"No table has a matching name and these columns: {names}."
    return Chosen(UNKNOWN_TABLE, todo=(f"{wanted_table} {none}",))


def _lacks(query: SurveyedQuery, columns: Mapping[str, str]) -> list[str]:
    there = {each.lower() for each in columns}
    return [each.name for each in query.columns if each.name.lower() not in there]


def _output(
    name: str, query: SurveyedQuery, table: Chosen[str], columns: Mapping[str, str]
) -> ProposedOutput:
    return ProposedOutput(
        valid_name(name), query, table, _time_of_result(query, columns), _keys(query, columns)
    )


def _time_of_result(query: SurveyedQuery, columns: Mapping[str, str]) -> Chosen[str] | None:
    """The column that decides whether a row belongs to the window."""
    there = {name.lower(): name for name, kind in columns.items() if kind in {*TIMES, "date"}}
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
        todo = "Check that it decides whether a row is in the window."
        return Chosen(events[0], (why,), (todo,))
    if len(times) == 1:
        return Chosen(times[0], ("The only time column of the result.",))
    if times or there:
        todo = (
            "Choose the column that decides whether a row is in the window. Candidates:"
            f" {', '.join(times or there.values())}."
        )
        return Chosen((times or list(there.values()))[0], todo=(todo,))
    return None


def _keys(query: SurveyedQuery, columns: Mapping[str, str]) -> Chosen[tuple[str, ...]] | None:
    by = ", ".join(query.groups_by)
    there = {each.lower(): each for each in columns if "." not in each}
    keys = [there.get(key.lower()) for key in query.keys]
    if keys and all(keys) and query.function is None:
        return Chosen(
            tuple(filter(None, keys)),
            (f"The columns that identify a row: the query groups by {by}.",),
        )
    if query.groups_by and query.output_mode == "update" and query.function is None:
        todo = f"Set this to the columns that identify a row; the query groups by {by}."
        return Chosen((UNKNOWN_COLUMN,), todo=(todo,))
    return None
