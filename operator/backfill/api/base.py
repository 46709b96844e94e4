"""Base class of all resources: frozen, camelCase in manifests, no unknown fields. And messages of bounded length."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

MOST_MESSAGE_CHARACTERS = 8192
"""Length at which a message is cut: the API server refuses strings without a bound, and stack traces have none."""


def shortened(text: object) -> object:
    """The text, cut where it is longer than a message may be."""
    if isinstance(text, str) and len(text) > MOST_MESSAGE_CHARACTERS:
        return f"{text[: MOST_MESSAGE_CHARACTERS - 1]}…"
    return text


Message = Annotated[str, BeforeValidator(shortened), Field(max_length=4 * MOST_MESSAGE_CHARACTERS)]
"""Text for people. A longer one is cut, not refused; the bound leaves room for a message within another."""


class Model(BaseModel):
    """A part of a resource, immutable once read. Fields are snake_case in Python and camelCase in manifests."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )

    def to_manifest(self) -> dict[str, object]:
        """This part in the form of a manifest: JSON types, camelCase, without unset fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
