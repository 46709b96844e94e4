"""The newest known version of a SplitAssignment, from answers and events."""

import logging
import threading
from typing import Any

from pydantic import ValidationError

from backfill.api.base import Model
from backfill.protocol.split_assignment import SplitAssignmentSpec, SplitAssignmentStatus

_log = logging.getLogger(__name__)


class SeenAssignment:
    """Shared by the threads of a channel. Older versions never replace newer ones."""

    def __init__(self, owner_uid: str):
        """``owner_uid`` is the uid of the Backfill. The object of another Backfill with the same
        name does not count.
        """
        self._owner_uid = owner_uid
        self._lock = threading.Lock()
        self._manifest: dict[str, Any] | None = None
        self._spec: SplitAssignmentSpec | None = None
        self._gone = False

    def take(self, manifest: dict[str, Any]) -> None:
        """Takes a version from the API server, unless a newer one is known."""
        with self._lock:
            if self._gone:
                return
            metadata = manifest["metadata"]
            if not any(
                owner["uid"] == self._owner_uid for owner in metadata.get("ownerReferences", [])
            ):
                self._gone = True
                return
            if self._manifest is not None and int(metadata["resourceVersion"]) <= int(
                self.version or 0
            ):
                return
            self._manifest = manifest
            self._spec = _spec_of(manifest) or self._spec

    def end(self) -> None:
        """Records that the object was deleted, and its Backfill with it."""
        with self._lock:
            self._gone = True

    @property
    def gone(self) -> bool:
        """Whether the object was deleted, or belongs to another Backfill."""
        return self._gone

    @property
    def spec(self) -> SplitAssignmentSpec | None:
        """The newest spec; None if there is none."""
        return self._spec

    @property
    def status(self) -> SplitAssignmentStatus | None:
        """The last status of any attempt; None if there is none,
        or if another version has written it.
        """
        stored = (self._manifest or {}).get("status")
        try:
            return SplitAssignmentStatus.model_validate(stored) if stored else None
        except ValidationError:
            return None

    @property
    def version(self) -> str:
        """The resourceVersion; empty if no version is known."""
        return str(self._manifest["metadata"]["resourceVersion"]) if self._manifest else ""

    def status_patch(self, status: SplitAssignmentStatus) -> list[dict[str, Any]]:
        """A JSON patch that replaces the status, if object and attempt are the same and nothing
        else has written in the meantime.

        A write without an answer may still arrive later. The last test makes it fail after a newer
        one.
        """
        manifest = self._manifest
        if manifest is None:
            raise AssertionError("nothing was seen yet")
        stored = manifest.get("status")
        unchanged = (
            {"path": "/status/heartbeat", "value": stored["heartbeat"]}
            if stored
            else {"path": "/status", "value": None}
        )
        return [
            {"op": "test", "path": "/metadata/uid", "value": manifest["metadata"]["uid"]},
            {"op": "test", "path": "/spec/attempt", "value": status.attempt},
            {"op": "test", **unchanged},
            {"op": "add", "path": "/status", "value": status.to_manifest()},
        ]


def _spec_of(manifest: dict[str, Any]) -> SplitAssignmentSpec | None:
    """The spec, with the fields that this version knows: a newer controller may write more."""
    try:
        return SplitAssignmentSpec.model_validate(_known(SplitAssignmentSpec, manifest["spec"]))
    except ValidationError as error:
        _log.warning("the assignment is not valid and is ignored: %s", error)
        return None


def _known(model: type[Model], fields: dict[str, Any]) -> dict[str, Any]:
    names = {field.alias for field in model.model_fields.values()}
    return {name: value for name, value in fields.items() if name in names}
