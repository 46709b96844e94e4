"""Outputs in the spec of a Backfill: the tables that results go to, and how they are published."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from backfill.api.base import Model
from backfill.api.field_types import (
    ColumnName,
    DirectoryUri,
    InputName,
    Name,
    TableName,
    TimestampUnit,
)
from backfill.api.quantities import Duration

PERCENTAGE_PATTERN = r"^(100(\.0+)?|\d{1,2}(\.\d+)?)$"
Percentage = Annotated[str, Field(pattern=PERCENTAGE_PATTERN, max_length=16)]
TOLERANCE_PATTERN = (
    r"^(\d{1,18}(\.\d{1,18})?|(\d{1,9}d)?(\d{1,9}h)?(\d{1,9}m)?(\d{1,9}s)?(\d{1,9}ms)?)$"
)
Tolerance = Annotated[str, Field(pattern=TOLERANCE_PATTERN, min_length=1, max_length=40)]
MOST_COMPARED_COLUMNS = 64
MOST_KEYS = 16
MOST_OVERLAPS = 32
MOST_SKIPPED = 64


class PublishMode(StrEnum):
    """Where a result goes, and what it replaces there."""

    NONE = "None"
    APPEND = "Append"
    REPLACE = "Replace"
    UPSERT = "Upsert"
    EXPORT = "Export"
    DELIVER = "Deliver"

    @property
    def takes_rows_away(self) -> bool:
        """Whether rows of the table may be replaced."""
        return self in {PublishMode.REPLACE, PublishMode.UPSERT}


class Reference(Model):
    """Table with the expected rows, such as one written by a batch job or an earlier system.
    Nothing is published to it, so read permission is enough.
    """

    table: TableName
    """Iceberg table, as ``catalog.namespace.table``. Must not be the output's own table."""
    timestamp_column: ColumnName | None = None
    """Column of this table that decides whether a row belongs to the window. Default: the output's
    ``timestampColumn``.
    """
    timestamp_unit: TimestampUnit | None = None
    """Unit of a long ``timestampColumn``: ``s``, ``ms``, ``us`` or ``ns``. Default: the output's
    ``timestampUnit`` if ``timestampColumn`` is not set.
    """


class Validate(Model):
    """What the result is compared with before it is published, and how."""

    against: Literal["Production", "Reference"] = "Production"
    """Rows to compare the result with: those in [``window.start``, ``window.end``), as they are
    when the last step is committed. ``Production``: rows of the output's table. ``Reference``: rows
    of the table in ``reference``.
    """
    reference: Reference | None = None
    """Table to compare the result with. Required by ``against: Reference``, not allowed with
    ``Production``.
    """
    keys: Annotated[tuple[ColumnName, ...], Field(max_length=MOST_COMPARED_COLUMNS)] = ()
    """Columns that identify a row. Default: the output's ``keys``. Without keys, rows are compared
    as a multiset: a row matches an equal row of production, or of the reference, each of which can
    match only once.
    """
    tolerance: Annotated[dict[str, Tolerance], Field(max_length=MOST_COMPARED_COLUMNS)] = Field(
        default_factory=dict
    )
    """Maximum difference, by column, between two values that count as equal: a number for numeric
    columns, such as ``"0.01"``, or a duration for timestamps and dates, such as ``5s``. Requires
    ``keys``. Ignored for rows whose keys occur more than once.
    """
    ignore: Annotated[tuple[ColumnName, ...], Field(max_length=MOST_COMPARED_COLUMNS)] = ()
    """Columns to exclude from the comparison, such as the time at which a row was written."""
    min_match: Percentage = "99.9"
    """Minimum percentage of matching rows, from 0 to 100. If fewer rows match, the result is not
    published without approval. The percentage is the number of matching rows divided by the total
    of all rows of production (or of the reference) and the rows found only in the result. It is not
    rounded.
    """

    @model_validator(mode="after")
    def _one_other_side(self) -> Self:
        if (self.against == "Reference") != (self.reference is not None):
            raise PydanticCustomError(
                "validate_reference",
                "reference is required with against: Reference, and not allowed with against:"
                " Production",
            )
        return self


class SkippedBatch(Model):
    """Batch that is not delivered."""

    batch: Annotated[int, Field(ge=0)]
    """Number of the batch, as the message of a failed delivery and the status have it."""
    reason: Annotated[str, Field(min_length=1, max_length=512)]
    """Why it is skipped."""


class Delivery(Model):
    """How rows are delivered."""

    batch_interval: Duration | None = None
    """Length of history, by arrival time, whose rows are delivered at once, as one batch with the
    number of its last step. One that is as long as the window delivers all rows at once. Default:
    one batch for each step.
    """
    max_rows_per_second: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of rows to deliver per second, on average. Default: no limit."""
    skip: Annotated[tuple[SkippedBatch, ...], Field(max_length=MOST_SKIPPED)] = ()
    """Batches to leave out, such as one that the function cannot process."""

    @field_validator("batch_interval")
    @classmethod
    def _some_time(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and not value:
            raise PydanticCustomError("batch_interval", "must be greater than zero")
        return value


class Publish(Model):
    """How the result of an output is published."""

    mode: PublishMode = PublishMode.NONE
    """``None``: keep the result in its branch. ``Append``: add its rows to the table. ``Replace``:
    replace the table's rows of the window with the result. ``Upsert``: add its rows to the table,
    replacing rows with the same ``keys`` and keeping all others. ``Export``: write its rows as
    Parquet files to ``location`` without changing the table. ``Deliver``: give its rows to the
    application's own function of ``foreachBatch`` or ``foreach``, or to its Kafka sink, batch by
    batch, as production does.
    """
    location: DirectoryUri | None = None
    """Directory or object store prefix for the files of mode ``Export``, not used by any other
    output, such as ``s3a://lake/out/plays-july``. It must be empty or absent when the plan is made,
    and must neither contain the workspace or a table of the Backfill nor be within one of them. It
    is accessed with the catalog properties of the output's ``table``. Required by ``Export``, not
    allowed with other modes.
    """
    approval: Literal["Automatic", "Manual"] | None = None
    """``Automatic``: publish as soon as the result is complete. ``Manual``: wait for approval
    first. Default: ``Manual`` for mode ``Deliver``, which cannot be undone, and for modes
    ``Replace`` and ``Upsert`` unless ``validate`` compares with ``Production``, because they would
    remove rows without a comparison; otherwise ``Automatic``. May change to ``Manual`` at any time,
    but not to ``Automatic`` once the plan is made.
    """
    deliver: Delivery | None = None
    """How mode ``Deliver`` delivers the rows. Not allowed with other modes. May change at any time.
    Default: all batches, as fast as possible.
    """
    incomplete: Literal["Wait", "Publish"] = "Wait"
    """What modes ``Replace`` and ``Upsert`` do if some rows of the result were still open, or may
    have been, when the input ended. Open rows are missing from the result, or their values are not
    final. ``Wait``: wait for approval, even if ``approval`` is ``Automatic``. ``Publish``: publish
    the result anyway; ``Replace`` then also deletes rows of production that it does not replace.
    May change at any time.
    """
    mismatch: Literal["Wait", "Publish"] = "Wait"
    """What happens if fewer rows match than ``validate.minMatch`` requires, or if the result could
    not be compared. ``Wait``: wait for approval, even if ``approval`` is ``Automatic``.
    ``Publish``: publish the result anyway. May change at any time.
    """
    max_loss: Percentage = "1"
    """Maximum percentage of production's rows that mode ``Replace`` may remove without replacement,
    from 0 to 100. If the result has fewer rows than that in any stretch of the window, or none
    where production has some, publishing waits for approval, even if ``approval`` is ``Automatic``
    and ``incomplete`` and ``mismatch`` are ``Publish``. ``"100"``: never wait because of this. May
    change at any time.
    """
    allow_null: Annotated[tuple[ColumnName, ...], Field(max_length=MOST_COMPARED_COLUMNS)] = ()
    """Columns that may be null in every row of the result although production's rows have values.
    Without it, such a column stops the run after the first rows if nearly all of production's rows
    have a value, and any result with one waits for approval before it is published, because the
    application may decode fields by names that its records do not have. A column includes its
    fields. May change at any time.
    """
    allow_overlap: Annotated[tuple[Name, ...], Field(max_length=MOST_OVERLAPS)] = ()
    """Names of other Backfills whose published rows mode ``Append`` may add to, although their
    window overlaps this one. Without it, ``Append`` is refused where the table already has rows
    that a Backfill has published for the same time, because they may be the same rows. May change
    at any time.
    """

    def allows_null(self, column: str) -> bool:
        """Whether a column, or a field of one, may be null in every row."""
        return any(f"{column}.".startswith(f"{each}.") for each in self.allow_null)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.mode is PublishMode.EXPORT) != (self.location is not None):
            raise PydanticCustomError(
                "publish_location",
                "location is required with mode: Export, and not allowed with any other mode",
            )
        if self.deliver is not None and self.mode is not PublishMode.DELIVER:
            raise PydanticCustomError(
                "publish_deliver", "deliver is not allowed with any mode other than Deliver"
            )
        return self


class Output(Model):
    """Sink of the application, and the table that it writes."""

    name: InputName
    """Name of the sink or of the streaming query (``queryName``) in the application, unique among
    the outputs. A query without a name can also be identified by its topic, or by the last part of
    its path. At most 63 letters, digits, ``-``, ``_`` and ``.``.
    """
    table: TableName
    """Iceberg table that the application writes in production, as ``catalog.namespace.table``. For
    a query that sends records to Kafka, a table with their columns: ``key``, ``value``, and as
    needed ``headers`` and ``topic``. For publish mode ``Deliver``, a table that holds the rows
    until they are delivered, which is created if it does not exist. Unique among the outputs.
    """
    timestamp_column: ColumnName | None = None
    """Column that decides whether a row belongs to the window. Timestamps without a time zone are
    read as UTC. A date counts as midnight UTC, and the window must then start and end at midnight
    UTC. Required by publish modes ``Replace`` and ``Upsert``, and by ``window.warmUp`` and
    ``window.drain``. Default: none; every row written belongs to the window.
    """
    timestamp_unit: TimestampUnit | None = None
    """Unit of a long ``timestampColumn``, counted from 1970-01-01 UTC: seconds (``s``),
    milliseconds (``ms``), microseconds (``us``) or nanoseconds (``ns``). Required for a long
    column.
    """
    keys: Annotated[tuple[ColumnName, ...], Field(max_length=MOST_KEYS)] = ()
    """Columns that identify a row of the table, such as ``[window_start, user]``. Must be top-level
    columns; null equals null. Required by publish mode ``Upsert``, and by queries in ``Streaming``
    execution that change rows in output mode ``update``: their result is the newest row of each
    key. Also the default of ``validate.keys``.
    """
    validate_: Annotated[Validate | None, Field(alias="validate")] = None
    """How the result is compared with production, or with a reference table, before it is
    published. Requires ``timestampColumn``. Default: no comparison. May change at any time: a
    result waiting for approval is then compared again.
    """
    publish: Publish = Publish()
    """How the result is published. Default: it stays in its branch."""

    @property
    def destination(self) -> str:
        """The table or directory that the result is published to."""
        return self.publish.location or self.table

    @property
    def compared_keys(self) -> tuple[str, ...]:
        """Columns by which rows are compared."""
        return (self.validate_.keys if self.validate_ else ()) or self.keys

    @property
    def reference(self) -> Reference | None:
        """The table that the result is compared with; None for production."""
        return self.validate_.reference if self.validate_ else None

    @property
    def reference_table(self) -> str | None:
        """The name of that table."""
        return self.reference.table if self.reference else None

    @property
    def needs_approval(self) -> bool:
        """Whether the result is published only after approval, whatever it is."""
        if self.publish.approval is None:
            if self.publish.mode is PublishMode.DELIVER:
                return True
            compared = self.validate_ is not None and self.reference is None
            return self.publish.mode.takes_rows_away and not compared
        return self.publish.approval == "Manual"

    @model_validator(mode="after")
    def _compares_what_there_is(self) -> Self:
        deliver = self.publish.mode is PublishMode.DELIVER
        if deliver and self.validate_ is not None and self.reference is None:
            raise PydanticCustomError(
                "validate_delivered",
                "validate requires against: Reference with publish mode Deliver, whose table has no"
                " rows of production",
            )
        return self
