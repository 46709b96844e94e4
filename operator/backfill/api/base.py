"""The one base class of all resources: frozen, camelCase outside, no unknown fields."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


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
        """This part as it would stand in a manifest: JSON types, camelCase, nothing that is unset."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
