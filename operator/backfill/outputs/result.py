"""What a result is called: its branch, the directory of its files, and how its snapshots say whose
they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata

from backfill.protocol.branches import result_branch

NAME = "backfill.name"
NAMESPACE = "backfill.namespace"
UID = "backfill.uid"
PLAN_ID = "backfill.plan-id"
OUTPUT = "backfill.output"


@dataclass(frozen=True, slots=True)
class Result:
    """What one plan of one Backfill gives for one output."""

    namespace: str
    """The Backfill's namespace."""
    backfill: str
    """The Backfill's name."""
    uid: str
    """The Backfill's uid: one that is made again under the same name, even with the same plan,
    gives another result.
    """
    plan_id: str
    output: str
    """The output's name."""

    @property
    def branch(self) -> str:
        """The branch of the output table that holds the result; the outputs of one table share
        it.
        """
        return result_branch(self.namespace, self.backfill)

    @property
    def summary(self) -> dict[str, str]:
        """What every snapshot of this result says in its summary."""
        return {
            NAME: self.backfill,
            NAMESPACE: self.namespace,
            UID: self.uid,
            PLAN_ID: self.plan_id,
            OUTPUT: self.output,
        }

    def earlier(self, summary: Mapping[str, str]) -> "Result | None":
        """The same output's result by an earlier Backfill of this name, if that is what made a
        snapshot.
        """
        if (summary.get(NAMESPACE), summary.get(NAME)) != (
            self.namespace,
            self.backfill,
        ) or summary.get(UID) == self.uid:
            return None
        return Result(
            self.namespace,
            self.backfill,
            summary.get(UID, ""),
            summary.get(PLAN_ID, ""),
            self.output,
        )

    def owns(self, summary: Mapping[str, str]) -> bool:
        """Whether a snapshot was made by the same plan of this very Backfill, for whatever
        output.
        """
        return all(
            summary.get(key) == value for key, value in self.summary.items() if key != OUTPUT
        )

    def is_named_by(self, summary: Mapping[str, str]) -> bool:
        """Whether a snapshot says that it is of this very result."""
        return all(summary.get(key) == value for key, value in self.summary.items())

    def staging_directory(self, metadata: TableMetadata) -> str:
        """Where the files of this result are written; nothing else is."""
        return f"{data_directory(metadata)}/{self.staging_path}"

    def kept_directory(self, metadata: TableMetadata) -> str:
        """Where rows of production are written that shared a file with replaced ones."""
        return f"{data_directory(metadata)}/{self.kept_path}"

    @property
    def staging_path(self) -> str:
        """The staging directory, relative to the one of the table's data."""
        return f"{self.own_path}/result"

    @property
    def kept_path(self) -> str:
        """The directory of kept rows, relative to the one of the table's data."""
        return f"{self.own_path}/kept"

    def data_directory_of(self, location: str) -> str | None:
        """The directory of the table's data when a file of this result was written there, which may
        have changed since; None for other files.
        """
        directory, found, _ = location.rpartition(f"/{self.staging_path}/")
        return directory if found else None

    @property
    def own_path(self) -> str:
        """The directory of all files written for this result, relative to the one of the table's
        data.
        """
        return f"backfill/{self.namespace}-{self.backfill}-{self.uid}/{quote(self.output, safe='')}"


def data_directory(metadata: TableMetadata) -> str:
    """Where a table's data files are."""
    return metadata.properties.get(
        TableProperties.WRITE_DATA_PATH, f"{metadata.location.rstrip('/')}/data"
    ).rstrip("/")
