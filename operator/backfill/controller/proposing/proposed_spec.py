"""The spec of a proposed Backfill: values with comments."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from backfill.api.quantities import format_duration, format_time
from backfill.api.spec import Window
from backfill.controller.proposing.commented import TODO, Commented
from backfill.controller.proposing.proposed import Chosen, Proposal, ProposedOutput, ProposedSource
from backfill.controller.proposing.proposed_times import Times, measured
from backfill.planning.lateness_sample import ArrivalLags
from backfill.protocol.survey_result import KINDS, SurveyedInput, SurveyedQuery


def spec_of(
    application: str,
    window: Window,
    proposal: Proposal,
    times: Times,
    lags: Mapping[str, ArrivalLags],
) -> dict[str, Any]:
    """The fields of the spec. Those that a person may ask about are :class:`Commented`."""
    return {
        "applicationRef": {"name": application},
        "window": {
            "start": format_time(window.start),
            "end": format_time(window.end),
            "warmUp": _with_why(times.warm_up),
            "drain": _with_why(times.drain),
        },
        "sources": [_source(each, lags.get(each.name)) for each in proposal.sources],
        **_static_tables(proposal),
        "ordering": {"allowedLateness": _with_why(times.allowed_lateness)},
        "outputs": [_output(each) for each in proposal.outputs],
        **_ignored(proposal),
    }


def _with_why(chosen: Chosen[Any], *more: str) -> Commented:
    todo = (f"{TODO}{each}" for each in chosen.todo)
    return Commented(chosen.value, (*chosen.why, *more, *todo))


def _source(source: ProposedSource, lags: ArrivalLags | None) -> Commented:
    read = source.read
    fields: dict[str, Any] = {
        "name": source.name,
        "table": _with_why(source.table),
        "timestampColumn": _with_why(
            source.timestamp_column, *([] if lags is None else [measured(source, lags)])
        ),
    }
    if source.timestamp_unit is not None:
        fields["timestampUnit"] = source.timestamp_unit
    if source.kafka:
        fields["kafka"] = Commented(
            dict(source.kafka),
            ("Kafka metadata of each record, from columns with matching names.",),
        )
    if (topic := _topic(read)) is not None:
        live: dict[str, Any] = {"topic": topic}
        if (value := _value(source)) is not None:
            live["value"] = value
        fields["live"] = {"kafka": live}
    return Commented(fields, (f"Reads the {KINDS[read.kind]} {read.name}.",))


def _topic(read: SurveyedInput) -> str | Commented | None:
    """The topic that a source stands for; None for a table."""
    match read.kind:
        case "Topic":
            return read.name
        case "Pattern":
            todo = "Set this to a topic that the pattern matches; add a source for each other one."
            return Commented("TODO", (f"{TODO}{todo}",))
    return read.topic


def _value(source: ProposedSource) -> Commented | None:
    """How rows become the values of records; None for the default, JSON."""
    read = source.read
    if source.value_column is not None:
        return Commented(
            {"format": "column", "column": source.value_column},
            ("The table contains the unchanged record values.",),
        )
    if read.value == "Avro":
        fields: dict[str, Any] = {"format": "avro", "schema": read.avro_schema, **_framing(read)}
        return Commented(fields, ("The program decodes values with from_avro and this schema.",))
    if source.times_as_numbers:
        names = ", ".join(source.times_as_numbers)
        todo = f"Check the unit of {names} in production's records: the table has timestamps."
        unit = Commented("ms", (f"{TODO}{todo}",))
        why = "The program decodes times as numbers."
        return Commented({"timestampUnit": unit, **_framing(read)}, (why,))
    if read.value == "Json" and read.framed:
        why = "The program decodes part of each value with from_json."
        return Commented({"format": "json", **_framing(read)}, (why,))
    if read.value == "Unknown" and read.kind in {"Topic", "Pattern"}:
        todo = (
            "How the program decodes values could not be determined. JSON is assumed; if that is"
            " wrong, set format, and schema or column."
        )
        return Commented({"format": "json"}, (f"{TODO}{todo}",))
    return None


def _framing(read: SurveyedInput) -> dict[str, Any]:
    if not read.framed:
        return {}
    todo = (
        "Set this to the schema's ID in production's registry, if the bytes that the program strips"
        " from each value are Confluent's header."
    )
    return {"framing": "Confluent", "schemaId": Commented(0, (f"{TODO}{todo}",))}


def _output(output: ProposedOutput) -> Commented:
    fields: dict[str, Any] = {"name": output.name, "table": _with_why(output.table)}
    if output.timestamp_column is not None:
        fields["timestampColumn"] = _with_why(output.timestamp_column)
    if output.keys is not None:
        fields["keys"] = Commented(list(output.keys.value), _with_why(output.keys).comments)
    choose = (
        "None keeps the result in its branch, where you can inspect it. Append adds it to the"
        " table, Replace replaces the window, Upsert replaces the rows with the same keys, Export"
        " writes it to files.",
    )
    fields["publish"] = {
        "mode": Commented("None", choose) if output.delivers is None else _with_why(output.delivers)
    }
    comments = [_query(output.query)]
    if output.timestamp_column is None:
        comments.append(
            f"{TODO}No column was found that decides whether a row is in the window. Set"
            " timestampColumn; without it, every row counts as being in the window."
        )
    return Commented(fields, tuple(comments))


def _query(query: SurveyedQuery) -> str:
    """What is known of a query, in a sentence."""
    if query.function is not None:
        name = f"The query {query.name}, whose batches a function writes"
    else:
        name = f"The query {query.name}" if query.name else "A query without a name"
    parts = [f"{name}, reads {', '.join(query.inputs)}"]
    parts += [
        f"watermark of {format_duration(timedelta(seconds=each.delay_seconds))} on {each.column}"
        for each in query.watermarks
    ]
    parts += query.joins
    if query.groups_by:
        parts.append(f"groups by {', '.join(query.groups_by)}")
    if query.output_mode != "append":
        parts.append(f"output mode {query.output_mode}")
    return f"{'; '.join(parts)}."


def _static_tables(proposal: Proposal) -> dict[str, Any]:
    tables = proposal.survey.static_tables
    if not tables:
        return {}
    listed = [{"table": table, "asOf": "now"} for table in tables]
    why = (
        "Tables that the program reads once.",
        f"{TODO}Decide whether to read their current state (asOf: now) or their state at the end of"
        " the window (asOf: window).",
    )
    return {"staticTables": Commented(listed, why)}


def _ignored(proposal: Proposal) -> dict[str, Any]:
    listed = [_with_why(each) for each in proposal.ignored]
    return {"ignoredQueries": listed} if listed else {}
