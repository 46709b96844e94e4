"""What was found of an application whose Backfill does not say what it reads and writes."""

import hashlib
import json
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema, field_validator

from backfill.api.base import Message, Model
from backfill.api.output import Output, Publish, PublishMode
from backfill.api.quantities import Duration
from backfill.api.source import Source
from backfill.api.spec import (
    MOST_IGNORED_QUERIES,
    MOST_OUTPUTS,
    MOST_SOURCES,
    BackfillSpec,
    IgnoredQuery,
    Ordering,
    PublishAll,
)
from backfill.api.static_table import MOST_STATIC_TABLES, StaticTable

MOST_ORIGINS: Final = 256
_DECIDED: Final = ("filter", "regions", "snapshot", "deletes", "watermark", "allow_incomplete")
"""Fields of a source that nobody looks for."""


def _as_in_the_spec(most: int) -> WithJsonSchema:
    """A list whose items have the fields of those in the spec. In the definition they are not
    described a second time: clients limit its size.
    """
    items = {"type": "object", "properties": {}, "additionalProperties": True}
    return WithJsonSchema({"type": "array", "maxItems": most, "items": items})


class Origin(Model):
    """Where a value comes from."""

    field: Annotated[str, Field(max_length=512)]
    """The field of the spec."""
    why: Message
    """The reason for its value."""


class Resolved(Model):
    """Fields of the spec that were found by running the application's main program and looking up
    its tables. They take effect where the spec does not set them, and are looked for again only if
    the Backfill is retried before it has a plan.
    """

    found_for: Annotated[str, Field(max_length=64)]
    """Digest of the fields of the spec that the search depended on."""
    sources: Annotated[
        tuple[Source, ...], Field(max_length=MOST_SOURCES), _as_in_the_spec(MOST_SOURCES)
    ]
    """Found inputs of the application, with the fields of ``spec.sources``."""
    static_tables: Annotated[
        tuple[StaticTable, ...],
        Field(max_length=MOST_STATIC_TABLES),
        _as_in_the_spec(MOST_STATIC_TABLES),
    ] = ()
    """Found tables that the application reads once, with the fields of ``spec.staticTables``."""
    outputs: Annotated[
        tuple[Output, ...], Field(max_length=MOST_OUTPUTS), _as_in_the_spec(MOST_OUTPUTS)
    ] = ()
    """Found sinks of the application that ``spec.outputs`` lacks, with its fields."""
    ignored_queries: Annotated[
        tuple[IgnoredQuery, ...], Field(max_length=MOST_IGNORED_QUERIES)
    ] = ()
    """Queries that cannot be outputs."""
    warm_up: Duration = Field(default="0s", validate_default=True)
    """Found value of ``window.warmUp``."""
    drain: Duration = Field(default="0s", validate_default=True)
    """Found value of ``window.drain``."""
    allowed_lateness: Duration = Field(default="5m", validate_default=True)
    """Found value of ``ordering.allowedLateness``."""
    origins: Annotated[tuple[Origin, ...], Field(max_length=MOST_ORIGINS)] = ()
    """Why each value was chosen."""

    @field_validator("sources")
    @classmethod
    def _all_rows(cls, sources: tuple[Source, ...]) -> tuple[Source, ...]:
        """Which rows of a table are read is not found, but decided by a person, as is whether any
        may be missing and whether snapshots are kept.
        """
        for each in sources:
            if any(getattr(each, name) != Source.model_fields[name].default for name in _DECIDED):
                raise ValueError("a found source says which rows are read")
        return sources

    @field_validator("outputs")
    @classmethod
    def _only_found(cls, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        """How a result is published is not found, but decided by a person: nothing of it is taken
        from a process that runs the application.
        """
        allowed = (Publish(), Publish(mode=PublishMode.DELIVER))
        if any(each.publish not in allowed or each.validate_ for each in outputs):
            raise ValueError("a found output says how it is published")
        return outputs


def resolved_spec(spec: BackfillSpec, found: Resolved) -> BackfillSpec:
    """A short spec with what was found. What the spec says itself stays: lists are extended by what
    they lack, and times that are not the default are kept.
    """
    defaults, window = Ordering(), spec.window
    late = spec.ordering.allowed_lateness
    lengths = {
        "warm_up": window.warm_up or found.warm_up,
        # live traffic closes what is open
        "drain": timedelta() if spec.hand_off is not None else window.drain or found.drain,
    }
    lateness = found.allowed_lateness if late == defaults.allowed_lateness else late
    listed = {each.table for each in spec.static_tables}
    static = (each for each in found.static_tables if each.table not in listed)
    ignored = dict.fromkeys((*spec.ignored_queries, *found.ignored_queries))
    outputs = (*spec.outputs, *found.outputs)
    return spec.model_copy(
        update={
            "window": window.model_copy(update=lengths),
            "ordering": spec.ordering.model_copy(update={"allowed_lateness": lateness}),
            "sources": found.sources,
            "static_tables": (*spec.static_tables, *static),
            "outputs": tuple(_published(each, spec.publish or "None") for each in outputs),
            "ignored_queries": tuple(ignored),
            "publish": None,
        }
    )


def search_digest(spec: BackfillSpec) -> str:
    """Digest of what a search for the rest of a short spec depends on."""
    read = spec.to_manifest()
    keys = ("applicationRef", "window", "ordering", "staticTables", "ignoredQueries", "catalogs")
    asked: dict[str, Any] = {key: read.get(key) for key in keys}
    asked["outputs"] = [(each.name, each.table) for each in spec.outputs]
    asked["delivered"] = delivered(spec)
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def delivered(spec: BackfillSpec) -> list[str]:
    """Outputs of the spec that are delivered."""
    outputs = (_published(each, spec.publish or "None") for each in spec.outputs)
    return [each.name for each in outputs if each.publish.mode is PublishMode.DELIVER]


def _published(output: Output, mode: PublishAll) -> Output:
    """The output, with a publish mode unless it has one."""
    if output.publish.mode is not PublishMode.NONE:
        return output
    publish = output.publish.model_copy(update={"mode": PublishMode(mode)})
    return output.model_copy(update={"publish": publish})
