"""What a program reads and writes, as a driver has found it that runs nothing."""

from typing import Literal

from backfill.api.base import Message, Model
from backfill.api.errors import Problem

SURVEY_FILE = "survey.json"
"""File with the survey, in the channel's directory."""


KINDS = {
    "Topic": "topic",
    "Pattern": "topics that match",
    "Table": "table",
    "Named": "source",
}
"""What an input is, by its kind, in words that its name follows."""


class SurveyedInput(Model):
    """Stream that the program reads."""

    kind: Literal["Topic", "Pattern", "Table", "Named"]
    """A Kafka topic, the topics that match a pattern, an Iceberg table, or a source that is read by
    name.
    """
    name: str
    """Name of the topic, table or source, or the pattern. A table's is as its catalog has it."""
    table: str | None = None
    """Table of the history of a source that is read by name, if the program's configuration says
    it.
    """
    topic: str | None = None
    """Kafka topic of a source that is read by name, if the program's configuration says it."""
    value: Literal["Json", "Avro", "Unknown"] = "Unknown"
    """How the program decodes the values of a topic's records."""
    fields: dict[str, str] = {}
    """Fields that it decodes, with their types in Spark."""
    avro_schema: str | None = None
    """The Avro schema that it decodes with."""
    framed: bool = False
    """Whether it decodes only a part of each value, as behind a header."""


class SurveyedWatermark(Model):
    """Watermark of a query."""

    column: str
    """The column that is the event time."""
    delay_seconds: float
    """How long the watermark stays behind it."""
    inputs: tuple[str, ...]
    """Names of the inputs whose rows it sees."""
    fields: tuple[str, ...] = ()
    """Fields of the input that the event time is made of, as far as the plan shows them."""


class SurveyedColumn(Model):
    """Column of a query's result."""

    name: str
    type: str
    """Type in Spark, such as ``timestamp``."""
    is_event_time: bool = False
    """Whether it is the event time of a watermark, or the start of a time window."""


class SurveyedWrite(Model):
    """What a function of ``foreachBatch`` writes."""

    place: str
    """Table, path or topic."""
    how: str
    """The call."""
    keys: tuple[str, ...] = ()
    """Columns by which rows replace earlier ones; empty if they are added."""


class SurveyedProblem(Model):
    """What a backfill refuses."""

    message: Message
    """What it is, with the line of the program."""
    fix: Message = ""
    """What to do about it."""

    @classmethod
    def of(cls, problem: Problem) -> "SurveyedProblem":
        """The problem in a survey."""
        return cls(message=problem.message, fix=problem.fix)


class SurveyedQuery(Model):
    """Query that the program starts."""

    name: str | None = None
    """The ``queryName``; null without one."""
    table: str | None = None
    """Table or path that it writes."""
    topic: str | None = None
    """Kafka topic that it writes."""
    format: str | None = None
    """Format of its sink, in lower case."""
    output_mode: str = "append"
    """Its output mode, in lower case."""
    function: str | None = None
    """Name of the function of ``foreachBatch``; null without one."""
    by_row: bool = False
    """Whether code of the program writes each row (``foreach``)."""
    columns: tuple[SurveyedColumn, ...] = ()
    """Columns of its result."""
    inputs: tuple[str, ...] = ()
    """Names of the inputs that it reads."""
    watermarks: tuple[SurveyedWatermark, ...] = ()
    """Its watermarks."""
    joins: tuple[str, ...] = ()
    """Its joins, in words."""
    groups_by: tuple[str, ...] = ()
    """What its last aggregation or deduplication groups rows by, in words; empty without one."""
    keys: tuple[str, ...] = ()
    """Columns of the result that identify a row by that; empty if the result lacks some of them."""
    sessions: bool = False
    """Whether it has session windows."""
    writes: tuple[SurveyedWrite, ...] = ()
    """What its function writes of an empty batch, or of a row of nulls, if it was called."""
    clients: tuple[str, ...] = ()
    """Modules by which its function may reach other systems, if it was called."""
    error: Message = ""
    """That its function failed or was not called, and why; empty otherwise."""
    problems: tuple[SurveyedProblem, ...] = ()
    """What a backfill refuses of it, as far as that was seen."""


class Survey(Model):
    """A program's streams and queries, or why they could not be found."""

    inputs: tuple[SurveyedInput, ...] = ()
    """The streams that it reads, in the order in which it does first."""
    static_tables: tuple[str, ...] = ()
    """Tables that it reads once, with their names in the catalogs."""
    queries: tuple[SurveyedQuery, ...] = ()
    """The queries, in the order in which they start. Without those that write to the console, to
    memory or nowhere.
    """
    reason: Literal["", "UnsupportedProgram", "ProgramFailed", "ApplicationFailed"] = ""
    """Why there is no answer, in one CamelCase word; otherwise empty."""
    message: Message = ""
    """The same in words, with a line for each problem."""
