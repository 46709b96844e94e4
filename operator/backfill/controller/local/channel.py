"""The controller's end of a channel without a cluster: two files in a directory."""

from pathlib import Path

from pydantic import ValidationError

from backfill.controller.local.model_files import CachedModel, M, Version, version_of
from backfill.protocol.atomic_files import replace_file
from backfill.protocol.split_assignment import (
    ASSIGNMENT_FILE,
    STATUS_FILE,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
)


class ControllerChannel:
    """Writes the assignment, reads the report. Files are parsed only when they have been
    replaced.
    """

    def __init__(self, directory: Path):
        self.directory = directory
        """What the driver talks through."""
        self._assignment = CachedModel(directory / ASSIGNMENT_FILE, SplitAssignmentSpec)
        self._report = CachedModel(directory / STATUS_FILE, SplitAssignmentStatus)

    def assignment(self) -> SplitAssignmentSpec | None:
        """What was written last, by this controller or one before it."""
        return _read(self._assignment)

    def report(self, *, newest: bool = False) -> SplitAssignmentStatus | None:
        """What some driver reported last; always the newest here."""
        return _read(self._report)

    def report_version(self) -> Version:
        """Changes with every report."""
        return version_of(self.directory / STATUS_FILE)

    def write(self, assignment: SplitAssignmentSpec) -> None:
        """Replaces the assignment. It need not outlive the machine: the driver does not either."""
        self.directory.mkdir(parents=True, exist_ok=True)
        replace_file(
            self.directory / ASSIGNMENT_FILE,
            assignment.model_dump_json(by_alias=True).encode(),
            durable=False,
        )


def _read(file: CachedModel[M]) -> M | None:
    """A message of another version is none at all: both sides say everything again."""
    try:
        return file.read()
    except ValidationError:
        return None
