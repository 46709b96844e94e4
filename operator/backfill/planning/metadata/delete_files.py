"""Finds the delete files that apply to each data file, by the rules of the Iceberg specification
("Scan Planning").

A deletion vector applies to the file that it names. A positional delete file applies to the file
that it names, or to all files of its partition. Both apply only to data that is not newer, and a
deletion vector replaces all positional deletes. An equality delete file applies to all files of its
partition, or of the table if it has no partition, that are older than it.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.planning.plan import DeleteFile, SourceInput
from backfill.planning.source_files import Int32s, Int64s

MOST_APPLIED = 1_000_000
"""Most times that equality deletes are applied to files or splits: a plan has them with each."""
_MOST_VALUES = 5_000_000
"""Most values of the equality deletes that are applied to one file. A task has them in memory, of
UUIDs in text some 200 bytes each.
"""
_PATH_FIELD_ID = 2147483546
"""Reserved field id of ``file_path`` in positional delete files."""


_Set = tuple[tuple[DeleteFile, ...], int | None, int, int]
"""Positional deletes, a partition, and the places from which on equality deletes of that partition,
and of the whole table, apply.
"""


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


class DeletesError(ValueError):
    """Why equality deletes cannot be applied."""


class DeleteIndex:
    """Collects the delete files of a snapshot, then returns those that apply to each data file."""

    def __init__(self) -> None:
        self._by_path: dict[str, list[_Delete]] = {}
        self._by_partition: dict[int, list[_Delete]] = {}
        self._rows: dict[DeleteFile, int] = {}
        self._by_value: dict[int | None, list[tuple[int, DeleteFile]]] = {}
        """Equality deletes with their sequence numbers, by partition; None for the whole table."""

    def add(self, deletes: DataFile, sequence: int, partition: int, *, partitioned: bool) -> None:
        """Adds a delete file, by its manifest entry as format version 3 has it; ``partitioned`` is
        whether its partition spec has partitions.
        """
        entry = deletes._data
        path, kind, referenced = str(entry[1]), str(entry[2]).lower(), entry[17]
        if entry[0] == DataFileContent.EQUALITY_DELETES:
            file = DeleteFile(path, kind, tuple(sorted(entry[14] or ())))
            self._rows[file] = int(entry[4] or 0)
            part = partition if partitioned else None
            self._by_value.setdefault(part, []).append((sequence, file))
            return
        lower, upper = _path_bound(entry[10]), _path_bound(entry[11])
        if referenced is None and lower is not None and lower == upper:
            referenced = lower
        delete = _Delete(DeleteFile(path, kind), sequence, lower, upper)
        if referenced is not None:
            self._by_path.setdefault(str(referenced), []).append(delete)
        else:
            self._by_partition.setdefault(partition, []).append(delete)

    def assign(
        self, paths: pa.StringArray, sequences: Int64s, partitions: Int32s, schema: Schema
    ) -> tuple[Int32s, list[tuple[DeleteFile, ...]]]:
        """For each data file the index of its set of deletes, and the sets. Set 0 is empty.

        Raises:
            DeletesError: equality deletes are too many, or do not fit the schema.
        """
        for found in self._by_value.values():
            found.sort(key=lambda each: (each[0], each[1].path))
        end = len(self._by_value.get(None, ()))
        sets: dict[_Set, int] = {((), None, end, end): 0}
        chosen = np.zeros(len(paths), np.int32)
        for row in self._candidates(paths, partitions):
            path, partition = paths[row].as_py(), int(partitions[row])
            sequence = int(sequences[row])
            applying = self._applying(path, sequence, partition)
            newer = (self._newer(partition, sequence), self._newer(None, sequence))
            chosen[row] = sets.setdefault((applying, partition, *newer), len(sets))
        self._check(list(sets), np.bincount(chosen, minlength=len(sets)), schema)
        return chosen, list(map(self._files, sets))

    def _check(self, sets: list[_Set], times: Int64s, schema: Schema) -> None:
        """Checks sets that apply to so many files each, before a list is made of any."""
        applied, first = 0, dict[int | None, int]()
        for (_, partition, *newer), files in zip(sets, times.tolist(), strict=True):
            for part, place in zip((partition, None), newer, strict=True):
                applied += files * (len(self._by_value.get(part, ())) - place)
                first[part] = min(first.get(part, place), place)
        if applied > MOST_APPLIED:
            raise DeletesError(f"{applied:,} times to files; at most {MOST_APPLIED:,} can be")
        values = dict.fromkeys((*first, None), 0)
        for part, place in first.items():
            for _, file in self._by_value.get(part, ())[place:]:
                _check_columns(file, schema)
                values[part] += self._rows[file] * len(file.equality)
        most = values.pop(None) + max(values.values(), default=0)
        if most > _MOST_VALUES:
            raise DeletesError(f"with {most:,} values to one file; at most {_MOST_VALUES:,} can be")

    def _newer(self, partition: int | None, sequence: int) -> int:
        """The place of the first equality deletes that are newer than a file of data."""
        return bisect_right(self._by_value.get(partition, ()), sequence, key=lambda each: each[0])

    def _files(self, applying: _Set) -> tuple[DeleteFile, ...]:
        positional, partition, *newer = applying
        equality = (
            file
            for part, first in zip((partition, None), newer, strict=True)
            for _, file in self._by_value.get(part, ())[first:]
        )
        return (*positional, *equality)

    def _candidates(self, paths: pa.StringArray, partitions: Int32s) -> Int64s:
        if None in self._by_value:
            return np.arange(len(paths))
        known = [each for each in (*self._by_partition, *self._by_value) if each is not None]
        hit = np.isin(partitions, np.array(known, np.int32))
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


def deletes_not_applied(field: str, source: SourceInput, why: object) -> InvalidPlanInput:
    """The error if equality deletes of a source's table cannot be applied."""
    return InvalidPlanInput(
        Problem(
            f"{field}.table",
            f"equality deletes of {source.table} cannot be applied: {why}",
            "compact the table (rewrite_data_files with delete-file-threshold 1) and plan again on"
            " the new snapshot, or set deletes: Ignore to read deleted rows as well",
        )
    )


def _check_columns(file: DeleteFile, schema: Schema) -> None:
    known = schema._lazy_id_to_field
    if not file.equality:
        raise DeletesError(f"{file.path} does not say by which columns")
    for column in file.equality:
        if column not in known:
            raise DeletesError(f"{file.path}: the schema has no column of id {column}")
        if not known[column].field_type.is_primitive:
            raise DeletesError(f"{file.path}: {schema.find_column_name(column)} has parts")
    if file.format != "parquet":
        raise DeletesError(f"{file.path}, which is not Parquet ({file.format})")


def unpartitioned(table: Table) -> set[int]:
    """IDs of the partition specs without a partition: equality deletes of these are of the whole
    table.
    """
    return {
        spec_id
        for spec_id, spec in table.metadata.specs().items()
        if all(isinstance(each.transform, VoidTransform) for each in spec.fields)
    }


def _path_bound(bounds: object) -> str | None:
    value = bounds.get(_PATH_FIELD_ID) if isinstance(bounds, dict) else None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None
