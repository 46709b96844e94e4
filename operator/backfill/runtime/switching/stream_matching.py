"""Matches streams of the application with the sources and outputs of the resource.

Does not use Spark.
"""

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from backfill.api.errors import Problem, UnsupportedProgram
from backfill.api.field_types import as_input_name
from backfill.api.output import Output, PublishMode
from backfill.api.source import Source
from backfill.api.spec import Execution
from backfill.runtime.named_sources import NAMED_FORMAT
from backfill.runtime.queries.run_state import OutputWrites

WHY_A_STREAM = "its function (foreachBatch) is called with the rows of one micro-batch at a time"
"""Why a query with a function is not run by spans: their rows are those of many steps."""
WHY_DELIVERED = "its rows are delivered one micro-batch at a time"
"""Why a query whose rows are delivered is not run by spans."""
_SAYS_NOTHING = re.compile(r"[._]?(checkpoint|ckpt|chk|cp)s?", re.IGNORECASE)
_MAY_CHANGE = re.compile(r"^tmp\w{8}$|[0-9a-f]{8}|\d{4}-\d\d")
"""Names of temporary directories, random numbers and times."""
_LONGEST_PLACE = 100
_PARTITIONS = re.compile(r"(/[^/=]+=[^/]*)+/?$")
FILE_FORMATS = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
"""Formats that Spark's file sink writes."""
_KEEP_NOTHING = ("console", "memory", "noop")
"""Formats that keep nothing."""
PATTERN = "subscribepattern"
"""The option of a Kafka reader with a pattern for topics, in lower case."""


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a ``writeStream``, as the application describes it."""

    format: str | None = None
    query_name: str | None = None
    table: str | None = None
    """Table of ``toTable``, or the path, or the option that names one."""
    topic: str | None = None
    """Option ``topic`` of a Kafka sink."""
    checkpoint: str | None = None
    """Option ``checkpointLocation``."""
    output_mode: str = "append"
    ends: bool = False
    """Whether its trigger ends it when it has read what is there (``availableNow``, ``once``)."""
    row_writer: str = ""
    """The call of ``foreach``, where the application writes each row with code of its own; empty if
    it does not.
    """
    by_checkpoint: str | None = None
    """What tells a query with a function from others, if it has no name."""
    named_format: str | None = None
    """Format in production of a query that was started by an output's name."""
    to_table: bool = False
    """Whether it was started with ``toTable``."""

    @property
    def by_name(self) -> bool:
        """Whether the query was started by an output's name,
        so that it cannot write another output.
        """
        return self.format == NAMED_FORMAT

    @property
    def writes_files(self) -> bool:
        """Whether the query writes files by itself."""
        written_as = self.named_format if self.by_name else self.format
        return written_as in FILE_FORMATS or (
            self.format is None and "/" in (self.table or "") and not self.row_writer
        )

    @property
    def identities(self) -> set[str]:
        """Identities of a query: its name, or else its destinations."""
        return (
            {name for name in (self.query_name, self.by_checkpoint) if name}
            if self.query_name
            else {place for place in (self.topic, self.table) if place}
        )

    def __str__(self) -> str:
        """The query, as messages name it."""
        query = f"the query {self.query_name}" if self.query_name else "a query without a name"
        where = f" to {self.table or self.topic}" if self.table or self.topic else ""
        how = f" ({self.format})" if self.format else ""
        return f"{query}, which writes{where}{how}" if where or how else query


def subscribed_topics(options: Mapping[str, str]) -> list[str]:
    """The topics that a Kafka reader names, in its order.

    ``options`` are those of the reader, with names in lower case.

    Raises:
        UnsupportedProgram: it names none.
    """
    listed = (topic.strip() for topic in options.get("subscribe", "").split(","))
    # Kafka reads one that is listed twice once
    topics = list(dict.fromkeys(filter(None, listed))) or list(assigned_partitions(options))
    if topics:
        return topics
    what = "readStream of format kafka has no option subscribe, subscribePattern or assign"
    raise UnsupportedProgram(Problem("", what, "subscribe to topics by name"))


def assigned_partitions(options: Mapping[str, str]) -> dict[str, list[int]]:
    """By topic, the partitions that a Kafka reader is assigned; empty where it subscribes.

    ``options`` are those of the reader, with names in lower case.

    Raises:
        UnsupportedProgram: they are not written as Spark reads them.
    """
    written = options.get("assign")
    if written is None:
        return {}
    try:
        return {
            str(topic): [int(each) for each in partitions]
            for topic, partitions in json.loads(written).items()
        }
    except (ValueError, TypeError, AttributeError):
        raise UnsupportedProgram(
            Problem(
                "",
                f"readStream of format kafka sets assign to {written}",
                'write it as JSON, such as {"topic": [0, 1]}',
            )
        ) from None


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether a Kafka reader asks for the column ``headers``. ``options`` are those of the reader,
    with names in lower case.
    """
    return options.get("includeheaders", "false").lower() == "true"


def kafka_sources(
    options: Mapping[str, str],
    sources: Sequence[Source],
    matches: Callable[[str, str], bool],
) -> list[Source]:
    """The sources that replace the topics of a Kafka reader, in the order of its topics, or for a
    pattern in their own.

    Args:
        options: those of the reader, with names in lower case.
        sources: all sources.
        matches: whether a pattern, the first argument, is one for a topic.

    Raises:
        UnsupportedProgram: it does not say which topics it reads, no source replaces one, or a
            source does not say in which partition its rows were.
    """
    pattern, by_topic = options.get(PATTERN), {source.topic: source for source in sources}
    by_topic |= {source.topic: source for source in sources if source.live.kafka.topic}
    if pattern is not None:
        found = [source for topic, source in by_topic.items() if matches(pattern, topic)]
        if not found:
            message = f"no source replaces a Kafka topic that matches the pattern {pattern}"
            fix = "add a source with live.kafka.topic for each topic that it matches"
            raise UnsupportedProgram(Problem("spec.sources", message, fix))
        return found
    topics = subscribed_topics(options)
    problems = [
        Problem(
            "spec.sources",
            f"no source replaces the Kafka topic {topic}",
            f"add a source with live.kafka.topic: {topic}",
        )
        for topic in topics
        if topic not in by_topic
    ]
    for topic in assigned_partitions(options):
        source = by_topic.get(topic)
        if source is not None and source.kafka.partition_column is None:
            problems.append(
                Problem(
                    f"spec.sources[{sources.index(source)}].kafka.partitionColumn",
                    f"the application is assigned partitions of the topic {topic}, but source"
                    f" {source.name} does not specify which column contains the partition",
                    "set it, or subscribe to the topic if these are all its partitions",
                )
            )
    if problems:
        raise UnsupportedProgram(problems)
    return [by_topic[topic] for topic in topics]


def table_source(table: str, sources: Sequence[Source]) -> Source:
    """The source for a table that the application streams from.

    Raises:
        UnsupportedProgram: there is none, or there are several.
    """
    found = [source for source in sources if same_table(source.table, table)]
    if len(found) == 1:
        return found[0]
    if not found:
        problem = Problem(
            "spec.sources",
            f"no source reads the table {table}",
            f"add a source with table: {table}",
        )
    else:
        names = ", ".join(source.name for source in found)
        problem = Problem(
            "spec.sources",
            f"the table {table} is read by several sources ({names})",
            "read the sources by name",
        )
    raise UnsupportedProgram(problem)


def named_source(name: str, sources: Sequence[Source]) -> Source:
    """The source with this name.

    Raises:
        UnsupportedProgram: there is none.
    """
    for source in sources:
        if source.name == name:
            return source
    raise UnsupportedProgram(
        Problem(
            "spec.sources",
            f"the application reads the source {name}, which is not listed",
            "add it",
        )
    )


def check_same_topic(options: Mapping[str, str], source: Source) -> None:
    """Checks that a reader of a source by name has the topic of the resource in production, where
    its query continues with live traffic. ``options`` are those of the reader.

    Raises:
        UnsupportedProgram: it has another one.
    """
    read = options.get("subscribe", source.topic)
    if read != source.topic:
        raise UnsupportedProgram(
            Problem(
                "spec.sources",
                f"the program reads source {source.name} from the topic {read}, but"
                f" live.kafka.topic is {source.topic}",
                "set the same topic in both; the application continues from it",
            )
        )


def same_table(full_name: str, written: str) -> bool:
    """Whether the application's name of a table means this table. It may leave out the catalog."""
    name = written.replace("`", "").lower()
    return full_name.lower() == name or full_name.lower().split(".", 1)[1] == name


def static_table(written: str, tables: Sequence[str]) -> str | None:
    """The static table that the application's name means; None if there is none.

    A name that is a table's own means that table, even if others would match without their catalog
    or in another case.

    Raises:
        UnsupportedProgram: there are several.
    """
    found = _meant(written, tables)
    if len(found) > 1:
        raise UnsupportedProgram(
            Problem(
                "spec.staticTables",
                f"the application reads the table {written}, which may be {' or '.join(found)}",
                "list one of them, or make the application use the listed name",
            )
        )
    return found[0] if found else None


def _meant(written: str, tables: Iterable[str]) -> list[str]:
    """The tables that the application's name may mean: the one that has it, else those that have it
    in another case, else those that have it without their catalog.
    """
    name, known = written.replace("`", ""), list(tables)
    return next(
        filter(
            None,
            (
                [table for table in known if table == name],
                [table for table in known if table.lower() == name.lower()],
                [table for table in known if same_table(table, written)],
            ),
        ),
        [],
    )


def _with_table(written: str, outputs: Sequence[Output]) -> Output | None:
    """The output whose table the application's name means; None if there is none.

    Raises:
        UnsupportedProgram: there are several.
    """
    found = _meant(written, (output.table for output in outputs))
    if len(found) > 1:
        raise UnsupportedProgram(
            Problem(
                "spec.outputs",
                f"the application writes the table {written}, which may be {' or '.join(found)}",
                "make the application qualify the name with its catalog, or run a Backfill"
                " for each",
            )
        )
    return next((output for output in outputs if output.table in found), None)


def reason_to_leave_out(
    target: Target, outputs: Sequence[Output], ignored: Iterable[str]
) -> str | None:
    """Why a query of the application is not run; None if it is run."""
    if _plain(target.identities) & _plain(ignored):
        return "it is listed in spec.ignoredQueries"
    if target.format in _KEEP_NOTHING and _named(target, outputs) is None:
        return (
            f"rows written to {target.format} are lost with the driver, and no output has the"
            " query's name"
        )
    return None


def match_output(target: Target, outputs: Sequence[Output], written: Container[str]) -> Output:
    """The output that a query of the application writes.

    It is, in this order: the output with the query's name; unless the query was started by an
    output's name, the output with the query's table; the output whose name is the topic or path, or
    its last part, or the table if that is named without a namespace; the only output that is not
    ``written`` by another query.

    Raises:
        UnsupportedProgram: there is no such output, or the way it is written cannot be redirected.
    """
    problems = row_writer(target)
    free = [output for output in outputs if output.name not in written]
    found = _named(target, outputs) or (free[0] if len(free) == 1 and not target.by_name else None)
    if found is None:
        problems.append(
            _no_such_output(target, outputs) if target.by_name else _unmatched(target, free)
        )
    if problems or found is None:
        raise UnsupportedProgram(problems)
    return found


def delivered_output(target: Target, outputs: Sequence[Output]) -> Output | None:
    """The output for whose rows code of the application is called once they are approved: that of
    the query, if its publish mode is ``Deliver``; None if there is none.
    """
    found = _with_name(target.by_checkpoint, outputs) or _named(target, outputs)
    found = found or (outputs[0] if len(outputs) == 1 else None)
    delivers = found is not None and found.publish.mode is PublishMode.DELIVER
    return found if delivers else None


def check_sink(target: Target) -> None:
    """Checks that a sink of Spark can be given batches that a backfill has staged.

    Raises:
        UnsupportedProgram: it writes files, which readers find by its log, or replaces a table.
    """
    if target.writes_files:
        why = "is a sink of files, whose readers take only what its own log lists"
        fix = "use another publish.mode, such as Export"
    elif target.output_mode.lower() == "complete" and target.format != "kafka":
        why = "replaces what it has written with each batch (output mode complete)"
        fix = "use another publish.mode, with an output table"
    else:
        return
    raise UnsupportedProgram(
        Problem("spec.outputs", f"{target}, {why}, so its rows cannot be delivered", fix)
    )


def check_together(target: Target, output: Output) -> None:
    """Checks that batches of a query may be delivered together.

    Raises:
        UnsupportedProgram: they have several rows in the place of one.
    """
    deliver = output.publish.deliver
    if deliver is None or deliver.batch_interval is None or target.output_mode.lower() != "update":
        return
    message = (
        f"{target} changes rows that it has given before (output mode update), so batches that are"
        f" delivered together would have several of each"
    )
    fix = f"remove deliver.batchInterval of output {output.name}"
    raise UnsupportedProgram(Problem("spec.outputs", message, fix))


def _with_name(name: str | None, outputs: Sequence[Output]) -> Output | None:
    """The output with a query's name, or with as much of it as the name of an output may have."""
    known = {output.name: output for output in outputs}
    return None if name is None else known.get(name) or known.get(as_input_name(name))


def _named(target: Target, outputs: Sequence[Output]) -> Output | None:
    if (named := _with_name(target.query_name, outputs)) is not None:
        return named
    written = target.table or ""
    if (of_table := _with_table(written, outputs)) is not None:
        return of_table
    elsewhere = "." in written and "/" not in written and not target.writes_files
    places = [place for place in (target.topic, "" if elsewhere else written) if place]
    names = {name for place in places for name in (place, last_part(place))}
    return next((output for output in outputs if output.name in names), None)


def _no_such_output(target: Target, outputs: Sequence[Output]) -> Problem:
    names = ", ".join(output.name for output in outputs)
    fix = f"the outputs are {names}" if names else "add it"
    return Problem(
        "spec.outputs",
        f"the application writes the output {target.query_name}, which is not listed",
        fix,
    )


def check_shared(target: Target, output: Output, other: str, writes: OutputWrites) -> None:
    """Checks that a query can write an output as an ``other`` one does.

    Raises:
        UnsupportedProgram: one of them changes rows, or they write different places or in different
            ways.
    """
    place = place_of(target, output)
    if output.publish.mode is PublishMode.DELIVER:
        why = "the output delivers the batches of one query"
        fix = "add an output for each, with the name of its query"
    elif writes.place is not None and not same_place(writes.place, place):
        why = f"they write different places, {writes.place} and {place}"
        fix = "add an output for each, with its table, or list one in spec.ignoredQueries"
    elif target.output_mode.lower() != "append" or writes.holds not in (None, "Rows"):
        why = "one of them updates or overwrites rows, so it is unknown whose rows replace which"
        fix = (
            "make both append (output mode append), or combine their rows in one query, or list one"
            " of them in spec.ignoredQueries"
        )
    elif writes.records not in (None, target.format == "kafka"):
        why = "one of them sends records to Kafka, and the other one does not"
        fix = "add an output for each, with its table"
    else:
        return
    message = (
        f"two queries write the output {output.name} ({output.table}): the query {other}, and"
        f" {target}; {why}"
    )
    raise UnsupportedProgram(Problem("spec.outputs", message, fix))


def place_of(target: Target, output: Output) -> str:
    """The place that a query writes: a table, topic or path or, where it names none, itself."""
    place = target.topic or target.table or f"what {target} writes"
    return output.table if may_have_table(place, (output,)) else place


def name_of_query(target: Target, output: Output) -> str:
    """The name of a query, which is the same in every attempt, in whichever order threads start the
    queries: its own, unless that may be another in each attempt; else that of its output and of its
    checkpoint.
    """
    given = target.query_name
    if given is not None and not _MAY_CHANGE.search(given):
        return given
    return name_by_checkpoint(output.name, target.checkpoint)


def _unmatched(target: Target, free: Sequence[Output]) -> Problem:
    ignore = "list the query in spec.ignoredQueries to leave it out"
    if not free:
        return Problem(
            "spec.outputs", f"no output is left for {target}", f"add an output for it, or {ignore}"
        )
    names = " or ".join(output.name for output in free)
    return Problem(
        "spec.outputs",
        f"no output has the name, table, topic or path of {target}",
        f"set queryName to {names}, or {ignore}",
    )


def check_same_cluster(
    known: Mapping[str, str], options: Mapping[str, str], source: Source
) -> None:
    """Checks that two readers of a source read the same Kafka, where both queries continue.

    One may name more of its servers than the other.

    Raises:
        UnsupportedProgram: they have no server in common.
    """
    one, other = (_servers(each) for each in (known, options))
    if one & other:
        return
    raise UnsupportedProgram(
        Problem(
            "spec.handOff",
            f"the program reads topic {source.topic} from {', '.join(sorted(one))} and from"
            f" {', '.join(sorted(other))}, but history comes from one Kafka cluster",
            "read it from one cluster, and set the same kafka.bootstrap.servers for both readers",
        )
    )


def _servers(options: Mapping[str, str]) -> set[str]:
    return {each.strip() for each in options["kafka.bootstrap.servers"].split(",")}


def row_writer(target: Target) -> list[Problem]:
    """The problem of a query for whose rows code of the program runs; none of any other."""
    if not target.row_writer:
        return []
    message = (
        f"{target.row_writer} runs the application's own code for each row, whose effects a"
        " backfill cannot isolate from production"
    )
    named = f"the query {target.query_name}"
    delivered = deliver_instead(named)
    if not target.query_name:
        named, delivered = "it", f"give the query a queryName, and {deliver_instead('the query')}"
    fix = (
        f"{delivered}; or write the rows with writeStream (toTable, format), or as"
        f" DataFrames within foreachBatch; or list {named} in spec.ignoredQueries to leave it out"
    )
    return [Problem("", message, fix)]


def deliver_instead(query: str) -> str:
    """How code of a query may have effects outside of Spark."""
    return (
        f"add an output with the name of {query} and publish.mode: Deliver, to call its code with"
        " all rows once they are approved"
    )


def name_of_function(function: object) -> str:
    """What a query without a name is called by its function."""
    name = str(getattr(function, "__name__", type(function).__name__))
    return name if name.isidentifier() else "foreachBatch"


def name_by_checkpoint(called: str, location: str | None) -> str:
    """The name of a query without one, from what it is called by its function or its output, and
    from its checkpoint. So it is the same in every attempt, in whichever order they are started.

    Parts of the location that say nothing are passed over, and those that may be another in each
    attempt.
    """
    parts = (location or "").rstrip("/").split("/")
    while parts and _SAYS_NOTHING.fullmatch(parts[-1]):
        parts.pop()
    place = parts[-1][:_LONGEST_PLACE] if parts else ""
    says_nothing = place in ("", called) or _MAY_CHANGE.search(place)
    return called if says_nothing else f"{called}-{place}"


def named_twice(name: str, others: Container[str]) -> Iterator[Problem]:
    """The problem of a query whose name another query has."""
    if name in others:
        fix = "set a queryName for each, or checkpointLocations with different names"
        yield Problem("", f"two queries are named {name}", fix)


def check_function(name: str, others: Container[str], execution: Execution) -> None:
    """Checks that a query with a function can be run.

    Raises:
        UnsupportedProgram: another query has its name, or it would have to be run by spans.
    """
    problems = list(named_twice(name, others))
    if execution == "Batch":
        message = f'"Batch" is not possible for the query {name}: {WHY_A_STREAM}'
        problems.append(Problem("spec.execution", message, "use Streaming or Auto"))
    if problems:
        raise UnsupportedProgram(problems)


def match_write(place: str, how: str, query: str, outputs: Sequence[Output]) -> Output:
    """The output that a function of ``foreachBatch`` writes.

    It is, in this order: the output with this table; the output with this name; the output whose
    name is the last part of this table or path; the output with the query's name. ``how`` is the
    call, for messages.

    Raises:
        UnsupportedProgram: there is none.
    """
    tables = [output for output in outputs if output.publish.mode is not PublishMode.DELIVER]
    if (of_table := _with_table(place, tables)) is not None:
        return of_table
    for name in (place, last_part(place), query):
        for output in tables:
            if output.name == name:
                return output
    message = f"foreachBatch writes to {place} ({how}), which no output has as its table or name"
    fix = (
        f"add an output with its table, or with the name {last_part(place)}; or list {place} in"
        " spec.ignoredQueries to leave these writes out"
    )
    raise UnsupportedProgram(Problem("spec.outputs", message, fix))


def may_have_table(place: str, outputs: Iterable[Output]) -> bool:
    """Whether a place may be the table of one of some outputs."""
    return bool(_meant(place, (output.table for output in outputs)))


def same_place(one: str, other: str) -> bool:
    """Whether two names mean the same place. A table's name may leave out what comes first."""
    one, other = (f".{place.replace('`', '').rstrip('/')}" for place in (one, other))
    return one.endswith(other) or other.endswith(one)


def without_partitions(place: str) -> str:
    """A path without directories of partitions at its end, such as ``day=1``."""
    return _PARTITIONS.sub("", place)


def is_left_out(place: str, ignored: Iterable[str], outputs: Sequence[Output] = ()) -> bool:
    """Whether writes to a table, topic or path are left out, by its name or the last part of it.
    The table of an output is not: a query may have the same name, or a table elsewhere.
    """
    named = bool(_plain((place, last_part(place))) & _plain(ignored))
    return named and not may_have_table(place, outputs)


def last_part(place: str) -> str:
    """The last part of a table's or topic's name or of a path."""
    (name,) = _plain((place,))
    return name.rpartition("/")[2] if "/" in name else name.rpartition(".")[2]


def _plain(places: Iterable[str]) -> set[str]:
    """Names of tables without quotation marks, and paths without a slash at the end."""
    return {place.replace("`", "").rstrip("/") for place in places}
