"""The controller's side of the channel on one machine: two files in a directory."""

from pathlib import Path

from pydantic import ValidationError

from backfill.protocol.atomic_files import replace_file
from backfill.protocol.model_files import CachedModel, M, Version, version_of
from backfill.protocol.split_assignment import (
    ASSIGNMENT_FILE,
    STATUS_FILE,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
)


class ControllerChannel:
    """Writes the assignment and reads the report. A file is parsed only if it was replaced."""

    def __init__(self, directory: Path):
        self.directory = directory
        """The directory that controller and driver share."""
        self._assignment = CachedModel(directory / ASSIGNMENT_FILE, SplitAssignmentSpec)
        self._report = CachedModel(directory / STATUS_FILE, SplitAssignmentStatus)

    def assignment(self) -> SplitAssignmentSpec | None:
        """The last assignment, whichever controller has written it; None if it cannot be read."""
        return _read(self._assignment)

    def report(self, *, newest: bool = False) -> SplitAssignmentStatus | None:
        """The last report of a driver, which is always the newest; None if it cannot be read."""
        return _read(self._report)

    def report_version(self) -> Version:
        """Version of the report file, which changes with every report."""
        return version_of(self.directory / STATUS_FILE)

    def write(self, assignment: SplitAssignmentSpec) -> None:
        """Replaces the assignment. It need not survive a crash of the machine, which the driver
        does not either.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        replace_file(
            self.directory / ASSIGNMENT_FILE,
            assignment.model_dump_json(by_alias=True).encode(),
            durable=False,
        )

    def remove(self) -> None:
        """Removes the assignment if there is one."""
        (self.directory / ASSIGNMENT_FILE).unlink(missing_ok=True)


def _read(file: CachedModel[M]) -> M | None:
    """A message in the format of another version counts as none: both sides repeat everything."""
    try:
        return file.read()
    except ValidationError:
        return None
