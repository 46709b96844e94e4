"""Names of a result: its branch, the directories of its files,
and the summaries of its snapshots.
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
KEPT_IN = "backfill.kept-in"
_BATCH = "batch-"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one plan of a Backfill for one output."""

    namespace: str
    """Namespace of the Backfill."""
    backfill: str
    """Name of the Backfill."""
    uid: str
    """Uid of the Backfill.
    Another one with the same name, even with the same plan, has another result.
    """
    plan_id: str
    output: str
    """Name of the output."""
    kept_in: str = ""
    """Which cluster or state directory the Backfill is stored in. Only its branch says so, and only
    who stages rows, or looks for what an earlier Backfill has staged, needs to know.
    """

    @property
    def branch(self) -> str:
        """Branch of the output table for the result. Outputs of the same table share it."""
        return result_branch(self.namespace, self.backfill)

    @property
    def summary(self) -> dict[str, str]:
        """Entries in the summary of every snapshot of this result."""
        return {
            NAME: self.backfill,
            NAMESPACE: self.namespace,
            UID: self.uid,
            PLAN_ID: self.plan_id,
            OUTPUT: self.output,
        }

    @property
    def staged_summary(self) -> dict[str, str]:
        """Entries in the summary of every snapshot of the branch."""
        return self.summary | ({KEPT_IN: self.kept_in} if self.kept_in else {})

    def earlier(self, summary: Mapping[str, str]) -> "Result | None":
        """The result of an earlier Backfill of this name for the same output, if a snapshot with
        this summary is of one.

        A Backfill of this name that is stored somewhere else is not an earlier one, and may still
        run. Whoever plans a Backfill that is not stored at all does not know where it will be.
        """
        named = (summary.get(NAMESPACE), summary.get(NAME)) == (self.namespace, self.backfill)
        elsewhere = self.uid != "" and summary.get(KEPT_IN, "") != self.kept_in
        if not named or elsewhere or summary.get(UID) == self.uid:
            return None
        return Result(
            self.namespace,
            self.backfill,
            summary.get(UID, ""),
            summary.get(PLAN_ID, ""),
            self.output,
        )

    def owns(self, summary: Mapping[str, str]) -> bool:
        """Whether the same plan of the same Backfill has
        made a snapshot with this summary, for any output.
        """
        return all(
            summary.get(key) == value for key, value in self.summary.items() if key != OUTPUT
        )

    def is_named_by(self, summary: Mapping[str, str]) -> bool:
        """Whether a snapshot with this summary is of this result."""
        return all(summary.get(key) == value for key, value in self.summary.items())

    def staging_directory(self, metadata: TableMetadata) -> str:
        """Directory of the staged files of this result, and nothing else."""
        return f"{data_directory(metadata)}/{self.staging_path}"

    def batch_directory(self, metadata: TableMetadata, batch_id: int) -> str:
        """Directory of the rows that one micro-batch has changed, within the staging directory."""
        return f"{self.staging_directory(metadata)}/{_BATCH}{batch_id:08d}"

    def batch_of(self, location: str) -> int | None:
        """The micro-batch in whose directory a file of this result is; None if it is in none."""
        _, _, inside = location.rpartition(f"/{self.staging_path}/{_BATCH}")
        number, _, _ = inside.partition("/")
        return int(number) if number.isdecimal() and number.isascii() else None

    def kept_directory(self, metadata: TableMetadata) -> str:
        """Directory of rewritten files, with rows of
        production that shared a file with replaced ones.
        """
        return f"{data_directory(metadata)}/{self.kept_path}"

    @property
    def staging_path(self) -> str:
        """The staging directory, relative to the table's data directory."""
        return f"{self.own_path}/result"

    @property
    def kept_path(self) -> str:
        """The directory of rewritten files, relative to the table's data directory."""
        return f"{self.own_path}/kept"

    def data_directory_of(self, location: str) -> str | None:
        """The table's data directory at the time when a file of this result was written, which may
        have changed since; None for other files.
        """
        directory, found, _ = location.rpartition(f"/{self.staging_path}/")
        return directory if found else None

    @property
    def own_path(self) -> str:
        """The directory of all files of this result, relative to the table's data directory."""
        return f"backfill/{self.namespace}-{self.backfill}-{self.uid}/{quote(self.output, safe='')}"


def data_directory(metadata: TableMetadata) -> str:
    """The table's data directory."""
    return metadata.properties.get(
        TableProperties.WRITE_DATA_PATH, f"{metadata.location.rstrip('/')}/data"
    ).rstrip("/")
