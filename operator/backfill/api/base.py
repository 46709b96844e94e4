"""Base class of all resources: frozen, camelCase in manifests, no unknown fields. And messages of
bounded length.
"""

import re
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

MOST_MESSAGE_CHARACTERS = 8192
"""Length at which a message is cut: the API server refuses strings without a bound, and stack
traces have none.
"""


_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that steer a terminal, or turn the order of those after them. Tabs and line breaks are
none. Also halves of characters, which cannot be written as UTF-8: a program may have them from JSON
or from names of files.
"""


def printable(text: str) -> str:
    """The text with characters that are not printable as escapes.

    Names that tenants choose appear in what others read.
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def shortened(text: object) -> object:
    """The text as it may be shown, cut where it is longer than a message may be."""
    if not isinstance(text, str):
        return text
    shown = printable(text[: MOST_MESSAGE_CHARACTERS + 1])
    return (
        f"{shown[: MOST_MESSAGE_CHARACTERS - 1]}…"
        if len(shown) > MOST_MESSAGE_CHARACTERS
        else shown
    )


Message = Annotated[str, BeforeValidator(shortened), Field(max_length=4 * MOST_MESSAGE_CHARACTERS)]
"""Text for people. A longer one is cut, not refused; the bound leaves room for a message within
another.
"""


_Item = TypeVar("_Item")
Checked = Annotated[tuple[_Item, ...], Field(fail_fast=True)]
"""A list from somebody who is not trusted: it is given up at its first wrong item. What pydantic
notes of each wrong one takes a kilobyte, and a kilobyte of compressed text can hold a million of
them.
"""


class Model(BaseModel):
    """A part of a resource, immutable once read. Fields are snake_case in Python and camelCase in
    manifests.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    def to_manifest(self) -> dict[str, object]:
        """This part in the form of a manifest: JSON types, camelCase, without unset fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
