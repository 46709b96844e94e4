"""The Backfill resource: which history to run again, through which application, into which tables."""

from typing import Annotated, Final, Literal

from pydantic import Field

from backfill.api.base import Model
from backfill.api.quantities import Time
from backfill.api.spec import BackfillSpec, Name
from backfill.api.status import BackfillStatus

API_VERSION: Final = "backfill.dev/v1alpha1"
KIND: Final = "Backfill"


class ObjectMeta(Model):
    """The part of Kubernetes' object metadata that is used here; the rest is kept as it is."""

    model_config = {"extra": "allow"}

    name: Name
    """Unique in its namespace."""
    namespace: Name = "default"
    """Where it lives."""
    uid: Annotated[str, Field(max_length=64)] = ""
    """Tells this object from others that had its name before or will have it. Given where the object is stored."""
    generation: int = 1
    """Counts changes of the spec."""
    deletion_timestamp: Time | None = None
    """Set when deletion was asked for."""


class Backfill(Model):
    """Runs a streaming application again on its history: ordered, aligned, exactly once."""

    api_version: Literal["backfill.dev/v1alpha1"] = API_VERSION
    """The version of this resource."""
    kind: Literal["Backfill"] = KIND
    """The kind of this resource."""
    metadata: ObjectMeta
    """Name and namespace."""
    spec: BackfillSpec
    """Desired state."""
    status: BackfillStatus = BackfillStatus()
    """Observed state."""


def unread(metadata: ObjectMeta, status: BackfillStatus) -> Backfill:
    """A Backfill without a spec: nothing may ask for it."""
    return Backfill.model_construct(metadata=metadata, status=status)  # type: ignore[call-arg]
