"""The Backfill resource: runs a streaming application again on its history."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from backfill.api.base import Model
from backfill.api.field_types import Name
from backfill.api.quantities import Time
from backfill.api.resolved import resolved_spec, search_digest
from backfill.api.spec import BackfillSpec
from backfill.api.status import BackfillStatus

API_VERSION: Final = "backfill.dev/v1alpha1"
KIND: Final = "Backfill"
MOST_PLACE_CHARACTERS: Final = 4352
"""Longest path of a file on Linux, with some words."""


class ObjectMeta(Model):
    """Standard Kubernetes object metadata. Fields other than these are kept unchanged."""

    model_config = {"extra": "allow"}

    name: Name
    """Name of the object, unique within its namespace."""
    namespace: Name = "default"
    """Namespace of the object."""
    uid: Annotated[str, Field(max_length=64)] = ""
    """Unique ID, assigned when the object is stored. Distinguishes the object from earlier and
    later objects of the same name.
    """
    kept_in: Annotated[SkipJsonSchema[str], Field(max_length=MOST_PLACE_CHARACTERS)] = ""
    """Which cluster or state directory the object is stored in, in words. Whoever reads or creates
    it there sets this; it is no part of a manifest. Objects that are stored in different places are
    different ones, whatever their names.
    """
    generation: int = 1
    """Sequence number of the spec, incremented with each change."""
    deletion_timestamp: Time | None = None
    """When deletion was requested."""


class Backfill(Model):
    """Runs a streaming application again on its history: ordered, aligned, exactly once."""

    api_version: Literal["backfill.dev/v1alpha1"] = API_VERSION
    """API version of the resource."""
    kind: Literal["Backfill"] = KIND
    """Kind of the resource."""
    metadata: ObjectMeta
    """Standard object metadata."""
    spec: BackfillSpec
    """Desired state."""
    status: BackfillStatus = BackfillStatus()
    """Observed state."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """Completes a short spec by what was found for it. What was planned stays what it is: the
        digests of another version may differ.
        """
        found = self.status.resolved
        if self.spec.is_short and found is not None:
            planned = self.status.plan_id is not None
            if planned or found.found_for == search_digest(self.spec):
                object.__setattr__(self, "spec", resolved_spec(self.spec, found))
        return self


def unread(metadata: ObjectMeta, status: BackfillStatus) -> Backfill:
    """A Backfill whose spec is missing: use only its metadata and status."""
    return Backfill.model_construct(metadata=metadata, status=status)  # type: ignore[call-arg]
