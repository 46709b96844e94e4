"""Columns of type ``variant``, which PyIceberg 0.12 does not know, and nobody here can pass on.

A table that is read is shown without them, so that it can be read by programs that do not use them.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

from pydantic import Field
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, NestedField, PrimitiveType, StructType

from backfill.iceberg.format_v3 import with_metadata


class VariantType(PrimitiveType):
    """A value that says itself of which type it is."""

    root: Literal["variant"] = Field(default="variant")


@cache
def know_variants() -> None:
    """Lets PyIceberg, in this process, open tables with such columns: but for those within lists
    and maps, which stay unknown.
    """
    known: Any = IcebergType.handle_primitive_type

    def handle(kind: type[IcebergType], value: Any, handler: Any) -> IcebergType:
        return VariantType() if value == "variant" else known(value, handler)

    setattr(IcebergType, "handle_primitive_type", classmethod(handle))  # noqa: B010 - mypy knows it as a validator


def variant_columns(schema: Schema) -> list[str]:
    """The names of all such columns, also of fields within structs."""
    return list(_names(schema.fields, ""))


def without_variants(table: Table) -> Table:
    """The table as if it did not have them, in any snapshot."""
    if not any(map(variant_columns, table.schemas().values())):
        return table
    schemas = [_without(each) for each in table.metadata.schemas]
    return with_metadata(table, schemas=schemas)


def _names(fields: tuple[NestedField, ...], path: str) -> Iterator[str]:
    for field in fields:
        if isinstance(field.field_type, VariantType):
            yield f"{path}{field.name}"
        elif isinstance(field.field_type, StructType):
            yield from _names(field.field_type.fields, f"{path}{field.name}.")


def _without(schema: Schema) -> Schema:
    return Schema(
        *_others(schema.fields),
        schema_id=schema.schema_id,
        identifier_field_ids=schema.identifier_field_ids,
    )


def _others(fields: tuple[NestedField, ...]) -> Iterator[NestedField]:
    for field in fields:
        if isinstance(field.field_type, StructType):
            kind = StructType(*_others(field.field_type.fields))
            if kind.fields or not field.field_type.fields:  # Arrow makes no rows of empty structs
                yield field.model_copy(update={"field_type": kind})
        elif not isinstance(field.field_type, VariantType):
            yield field
