"""The messages between driver and controller; on one machine, two files in a directory."""

import logging
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from backfill.protocol.atomic_files import replace_file
from backfill.protocol.controller_liveness import controller_alive
from backfill.protocol.split_assignment import (
    ASSIGNMENT_FILE,
    STATUS_FILE,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
)

_log = logging.getLogger(__name__)


class Channel(Protocol):
    """The driver's side of a SplitAssignment. Messages may be late, repeated or lost. Only
    ``close`` waits.
    """

    @property
    def heartbeat_seconds(self) -> float:
        """Seconds between reports if nothing happens."""

    def assignment(self) -> SplitAssignmentSpec | None:
        """The newest known assignment; None if there is none."""

    def last_status(self) -> SplitAssignmentStatus | None:
        """The last reported status, possibly of an earlier attempt; None if there is none."""

    def report(self, status: SplitAssignmentStatus) -> None:
        """Replaces the status."""

    def controller_alive(self) -> bool:
        """Whether reports are read, or will be."""

    def close(self) -> None:
        """Ends reporting. Returns when the last report is delivered, or cannot be."""


class DirectoryChannel:
    """The channel to a controller on the same machine. Each side replaces its own file."""

    heartbeat_seconds = 2.0

    def __init__(self, directory: Path):
        self._directory = directory
        self._seen: tuple[int, int] | None = None
        self._assignment: SplitAssignmentSpec | None = None

    def assignment(self) -> SplitAssignmentSpec | None:
        """The controller's assignment. The file is parsed only if it was replaced, and ignored if
        it is not valid.
        """
        path = self._directory / ASSIGNMENT_FILE
        try:
            stat = path.stat()
            version = (stat.st_ino, stat.st_mtime_ns)
            if version != self._seen:
                self._assignment = SplitAssignmentSpec.model_validate_json(path.read_bytes())
                self._seen = version
        except FileNotFoundError:
            return self._assignment
        except ValidationError as error:
            _log.warning("%s is not a valid assignment and is ignored: %s", path, error)
            self._seen = version
        return self._assignment

    def last_status(self) -> SplitAssignmentStatus | None:
        """The status in the file; None if there is none, or if another version has written it."""
        try:
            return SplitAssignmentStatus.model_validate_json(
                (self._directory / STATUS_FILE).read_bytes()
            )
        except (FileNotFoundError, ValidationError):
            return None

    def report(self, status: SplitAssignmentStatus) -> None:
        """Replaces the status file. If it is lost in a crash of the machine, the status is computed
        again from the checkpoints.
        """
        content = status.model_dump_json(by_alias=True, exclude_none=True).encode()
        replace_file(self._directory / STATUS_FILE, content, durable=False)

    def controller_alive(self) -> bool:
        """Whether the controller's lock is held."""
        return controller_alive(self._directory)

    def close(self) -> None:
        """Does nothing: reports are delivered at once."""
