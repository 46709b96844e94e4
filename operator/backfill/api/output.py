"""Outputs in the spec of a Backfill: the tables that results go to, and how they are published."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from backfill.api.base import Model
from backfill.api.field_types import ColumnName, InputName, TableName, TimestampUnit

PERCENTAGE_PATTERN = r"^(100(\.0+)?|\d{1,2}(\.\d+)?)$"
Percentage = Annotated[str, Field(pattern=PERCENTAGE_PATTERN, max_length=16)]


class PublishMode(StrEnum):
    """How a result becomes part of the output table."""

    NONE = "None"
    APPEND = "Append"
    REPLACE = "Replace"


class Validate(Model):
    """How the result is compared with production before it is published. Not available yet: a
    Backfill that sets it is refused.
    """

    against: Literal["Production"] = "Production"
    """What to compare the result with."""
    keys: Annotated[tuple[ColumnName, ...], Field(max_length=64)] = ()
    """Columns that identify a row. Without any, rows are compared as a multiset."""
    min_match: Percentage = "99.9"
    """Minimum percentage of rows that must match, from 0 to 100."""


class Publish(Model):
    """How the result of an output is published."""

    mode: PublishMode = PublishMode.NONE
    """``None``: the result stays in its branch. ``Append``: its rows are added to the table.
    ``Replace``: its rows replace the table's rows of the window.
    """
    approval: Literal["Automatic", "Manual"] = "Automatic"
    """``Automatic``: publish as soon as the result is complete. ``Manual``: wait for approval
    first. May change at any time.
    """
    incomplete: Literal["Wait", "Publish"] = "Wait"
    """How mode ``Replace`` treats a result that lacks rows because they were still open when the
    input ended, or may lack rows because their number is unknown. ``Wait``: wait for approval, even
    if ``approval`` is ``Automatic``. ``Publish``: publish it, which also deletes rows of production
    that it does not replace. May change at any time.
    """


class Output(Model):
    """Sink of the application, and the table that it writes."""

    name: InputName
    """Name of the sink or of the streaming query (``queryName``) in the application, unique among
    the outputs. At most 63 letters, digits, ``-``, ``_`` and ``.``.
    """
    table: TableName
    """Iceberg table that the application writes in production, as ``catalog.namespace.table``.
    Unique among the outputs.
    """
    timestamp_column: ColumnName | None = None
    """Column that decides whether a row belongs to the window. Timestamps without a time zone are
    read as UTC. A date counts as midnight UTC, and the window must then start and end at midnight
    UTC. Required by publish mode ``Replace``, and by ``window.warmUp`` and ``window.drain``.
    Default: every row that is written belongs to the window.
    """
    timestamp_unit: TimestampUnit | None = None
    """Unit of a long ``timestampColumn``, counted from 1970-01-01 UTC: seconds (``s``),
    milliseconds (``ms``), microseconds (``us``) or nanoseconds (``ns``). Required for a long
    column.
    """
    validate_: Annotated[Validate | None, Field(alias="validate")] = None
    """How the result is compared with production before it is published. Not available yet: a
    Backfill that sets it is refused, so that nothing is published unchecked. To compare the result
    yourself, set ``publish.approval:
    Manual``.
    """
    publish: Publish = Publish()
    """How the result is published. Default: it stays in its branch."""
