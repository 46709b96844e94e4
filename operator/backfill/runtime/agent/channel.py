"""How a driver hears from its controller and answers it. Without a cluster: two files in a
directory.
"""

import logging
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from backfill.protocol.atomic_files import replace_file
from backfill.protocol.liveness import controller_alive
from backfill.protocol.split_assignment import (
    ASSIGNMENT_FILE,
    STATUS_FILE,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
)

_log = logging.getLogger(__name__)


class Channel(Protocol):
    """The driver's end of a SplitAssignment. Messages may come late, twice, or not at all. Nothing
    but ``close`` waits.
    """

    @property
    def heartbeat_seconds(self) -> float:
        """How often to report where nothing happens."""

    def assignment(self) -> SplitAssignmentSpec | None:
        """The newest spec known here; None while there is none."""

    def last_status(self) -> SplitAssignmentStatus | None:
        """The status as it was last reported, possibly by an earlier attempt."""

    def report(self, status: SplitAssignmentStatus) -> None:
        """Replaces the status."""

    def controller_alive(self) -> bool:
        """Whether somebody reads what is reported, or will."""

    def close(self) -> None:
        """Nothing is reported any more. Returns when the last report is delivered, or cannot be."""


class DirectoryChannel:
    """A channel for a controller on the same machine. Each side replaces its own file at once."""

    heartbeat_seconds = 2.0

    def __init__(self, directory: Path):
        self._directory = directory
        self._seen: tuple[int, int] | None = None
        self._assignment: SplitAssignmentSpec | None = None

    def assignment(self) -> SplitAssignmentSpec | None:
        """The controller's spec. The file is parsed only when it has been replaced; one that is not
        valid is left aside.
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
        """The status file, if it is there and of this version."""
        try:
            return SplitAssignmentStatus.model_validate_json(
                (self._directory / STATUS_FILE).read_bytes()
            )
        except (FileNotFoundError, ValidationError):
            return None

    def report(self, status: SplitAssignmentStatus) -> None:
        """Replaces the status file. A status that is lost with the machine is made again from the
        checkpoints.
        """
        content = status.model_dump_json(by_alias=True, exclude_none=True).encode()
        replace_file(self._directory / STATUS_FILE, content, durable=False)

    def controller_alive(self) -> bool:
        """Whether the controller's lock is held."""
        return controller_alive(self._directory)

    def close(self) -> None:
        """Every report was delivered when it was made."""
