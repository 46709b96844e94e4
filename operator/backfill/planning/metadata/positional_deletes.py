"""Finds the positional deletes that apply to each data file, by the rules of the Iceberg
specification ("Scan Planning").

A deletion vector applies to the file that it names. A positional delete file applies to the file
that it names, or to all files of its partition. Both apply only to data that is not newer, and a
deletion vector replaces all positional deletes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill.planning.plan import DeleteFile
from backfill.planning.source_files import Int32s, Int64s

_PATH_FIELD_ID = 2147483546
"""Reserved field id of ``file_path`` in positional delete files."""


@dataclass(frozen=True, slots=True)
class _Delete:
    file: DeleteFile
    sequence: int
    lower_path: str | None
    upper_path: str | None

    def may_touch(self, path: str) -> bool:
        return (self.lower_path is None or self.lower_path <= path) and (
            self.upper_path is None or path <= self.upper_path
        )


class DeleteIndex:
    """Collects the delete files of a snapshot, then returns those that apply to each data file."""

    def __init__(self) -> None:
        self._by_path: dict[str, list[_Delete]] = {}
        self._by_partition: dict[int, list[_Delete]] = {}
        self.equality: list[tuple[int, str]] = []
        """Sequence number and path of each equality delete file."""

    def add(self, entry: Sequence[object], sequence: int, partition: int) -> None:
        """Adds a positional delete file, given by the fields of its manifest entry in the order of
        format version 3.
        """
        path, kind, referenced = str(entry[1]), str(entry[2]).lower(), entry[17]
        lower, upper = _path_bound(entry[10]), _path_bound(entry[11])
        if referenced is None and lower is not None and lower == upper:
            referenced = lower
        delete = _Delete(DeleteFile(path, kind), sequence, lower, upper)
        if referenced is not None:
            self._by_path.setdefault(str(referenced), []).append(delete)
        else:
            self._by_partition.setdefault(partition, []).append(delete)

    def assign(
        self, paths: pa.StringArray, sequences: Int64s, partitions: Int32s
    ) -> tuple[Int32s, list[tuple[DeleteFile, ...]]]:
        """For each data file the index of its set of deletes, and the sets. Set 0 is empty."""
        sets: dict[tuple[DeleteFile, ...], int] = {(): 0}
        chosen = np.zeros(len(paths), np.int32)
        for row in self._candidates(paths, partitions):
            path, partition = paths[row].as_py(), int(partitions[row])
            applying = self._applying(path, int(sequences[row]), partition)
            chosen[row] = sets.setdefault(applying, len(sets))
        return chosen, list(sets)

    def _candidates(self, paths: pa.StringArray, partitions: Int32s) -> Int64s:
        hit = np.isin(
            partitions, np.fromiter(self._by_partition, np.int32, len(self._by_partition))
        )
        if self._by_path:
            named = pc.is_in(paths, value_set=pa.array(self._by_path, pa.string()))
            hit |= named.to_numpy(zero_copy_only=False)
        return np.flatnonzero(hit)

    def _applying(self, path: str, sequence: int, partition: int) -> tuple[DeleteFile, ...]:
        named = [delete for delete in self._by_path.get(path, ()) if delete.sequence >= sequence]
        vectors = [delete.file for delete in named if delete.file.format == "puffin"]
        if vectors:
            return tuple(sorted(vectors, key=lambda file: file.path))
        shared = [
            d
            for d in self._by_partition.get(partition, ())
            if d.sequence >= sequence and d.may_touch(path)
        ]
        return tuple(
            sorted({delete.file for delete in (*named, *shared)}, key=lambda file: file.path)
        )


def _path_bound(bounds: object) -> str | None:
    value = bounds.get(_PATH_FIELD_ID) if isinstance(bounds, dict) else None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None
