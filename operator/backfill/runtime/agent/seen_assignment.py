"""One SplitAssignment as a driver has seen it last, from whatever answer or event said the
newest.
"""

import logging
import threading
from typing import Any

from pydantic import ValidationError

from backfill.api.base import Model
from backfill.protocol.split_assignment import SplitAssignmentSpec, SplitAssignmentStatus

_log = logging.getLogger(__name__)


class SeenAssignment:
    """Shared by the threads of a channel. Never goes back: of what is taken, only the newer
    counts.
    """

    def __init__(self, owner_uid: str):
        """``owner_uid`` is the Backfill's; an object of a Backfill made again under its name is not
        ours.
        """
        self._owner_uid = owner_uid
        self._lock = threading.Lock()
        self._manifest: dict[str, Any] | None = None
        self._spec: SplitAssignmentSpec | None = None
        self._gone = False

    def take(self, manifest: dict[str, Any]) -> None:
        """The server has said this; it may be older than what is known."""
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
        """The object is gone, and its Backfill with it."""
        with self._lock:
            self._gone = True

    @property
    def gone(self) -> bool:
        """Whether there is no such object any more, or one of another Backfill in its place."""
        return self._gone

    @property
    def spec(self) -> SplitAssignmentSpec | None:
        """What may be done, as it was said last."""
        return self._spec

    @property
    def status(self) -> SplitAssignmentStatus | None:
        """What some attempt reported last; None where that was nothing this version can read."""
        stored = (self._manifest or {}).get("status")
        try:
            return SplitAssignmentStatus.model_validate(stored) if stored else None
        except ValidationError:
            return None

    @property
    def version(self) -> str:
        """Its resourceVersion; empty before anything was seen."""
        return str(self._manifest["metadata"]["resourceVersion"]) if self._manifest else ""

    def status_patch(self, status: SplitAssignmentStatus) -> list[dict[str, Any]]:
        """A JSON patch that replaces the status, unless the object or its attempt is another, or
        somebody wrote meanwhile.

        A write that is not answered may still arrive later. The last test makes it too late once
        another one has.
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
    """The spec, as far as this version knows its fields: a newer controller may say more."""
    try:
        return SplitAssignmentSpec.model_validate(_known(SplitAssignmentSpec, manifest["spec"]))
    except ValidationError as error:
        _log.warning("the assignment is not valid and is ignored: %s", error)
        return None


def _known(model: type[Model], fields: dict[str, Any]) -> dict[str, Any]:
    names = {field.alias for field in model.model_fields.values()}
    return {name: value for name, value in fields.items() if name in names}
