"""What is proposed: sources and outputs, each value with its comments."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from backfill.protocol.survey_result import Survey, SurveyedInput, SurveyedQuery

T = TypeVar("T")

UNKNOWN_TABLE = "TODO.namespace.table"
"""Stands for a source's table that was not found. That of an output has more behind it. No catalog
has this name.
"""
UNKNOWN_COLUMN = "TODO"
ARRIVAL_PROPERTY = "backfill.arrival-column"
"""Property of a table that names the column with the time at which its rows arrived."""
TIMES = ("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
"""Iceberg's types of columns with times."""


class Lake(Protocol):
    """The tables of the catalogs."""

    @property
    def names(self) -> Collection[str]:
        """All of them, as ``catalog.namespace.table``."""

    def find(self, written: str) -> str | None:
        """The table that a program means, which may leave out the catalog."""

    def columns(self, name: str) -> Mapping[str, str]:
        """The columns of a table, nested ones with dots, with their types in Iceberg."""

    def arrival_column(self, name: str) -> str | None:
        """The column that the table's properties name as the time at which rows arrived."""


@dataclass(frozen=True, slots=True)
class Chosen(Generic[T]):
    """A value of the manifest, with its comments."""

    value: T
    why: tuple[str, ...] = ()
    todo: tuple[str, ...] = ()
    """What a person has to decide or to look up."""


@dataclass(frozen=True, slots=True)
class ProposedSource:
    """A source of the manifest."""

    name: str
    read: SurveyedInput
    table: Chosen[str]
    timestamp_column: Chosen[str]
    timestamp_unit: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    value_column: str | None = None
    """Column with the values of records as they were, where the table has them undecoded."""
    event_column: str | None = None
    """The column that is the program's event time."""
    times_as_numbers: tuple[str, ...] = ()
    """Fields that the program decodes as numbers, and of which the table has times."""

    @property
    def found(self) -> bool:
        """Whether its topic, its table and the time of arrival are known."""
        return (
            self.read.kind != "Pattern"
            and self.table.value != UNKNOWN_TABLE
            and self.timestamp_column.value != UNKNOWN_COLUMN
        )


@dataclass(frozen=True, slots=True)
class ProposedOutput:
    """An output of the manifest."""

    name: str
    query: SurveyedQuery
    table: Chosen[str]
    timestamp_column: Chosen[str] | None
    """None where no column has the time of a row."""
    keys: Chosen[tuple[str, ...]] | None = None
    """Columns with commas between them; None where they are unknown and need not be known."""
    delivers: Chosen[str] | None = None
    """Its publish mode with the reason, where rows are delivered to the program's own code."""

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
    ignored: tuple[Chosen[str], ...]
    """Queries that are not run, with the reason."""
    unsolved: tuple[str, ...] = ()
    """What a person has to decide about queries, each in a sentence."""

    @property
    def found(self) -> bool:
        """Whether every table that is needed was found."""
        return all(each.found for each in self.sources) and all(each.found for each in self.outputs)
