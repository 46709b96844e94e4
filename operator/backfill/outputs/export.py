"""Publishes a result as Parquet files in a directory of its own, for readers that read files.

The files are copies of those in the result's branch, under names that do not change when the export
is repeated. The manifest, which lists them, is written after all of them and decides: with it the
result is exported, without it nothing is. ``_SUCCESS`` follows, as Spark's batch jobs leave it.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from backfill.api.base import Model
from backfill.api.errors import BackfillError, CanNotPublish, CanNotUndo, first_line
from backfill.api.json_text import read_json_text
from backfill.api.output import Output
from backfill.api.quantities import count
from backfill.api.status import ExportStatus
from backfill.iceberg.object_stores import store_properties
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.publication import final_files
from backfill.outputs.result_names import Result
from backfill.outputs.staging import branch_head, lost
from backfill.outputs.stored_files import OwnDirectory

MANIFEST = "_manifest.json"
SUCCESS = "_SUCCESS"
PROBE = "_probe"
"""File that is written and removed to see whether that is possible."""
_CHUNK_BYTES = 4 * 1024 * 1024
_COPIES_AT_ONCE = 4
_MOST_NAMED = 5
_MOST_MANIFEST_BYTES = 256 * 1024 * 1024
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{32}\.tmp")
"""What a writer to a disk leaves if it is killed."""


class Readable(Protocol):
    """An open file."""

    def read(self, size: int) -> bytes:
        """The next bytes; none at the end."""


class ExportedFile(Model):
    """A data file of an export."""

    name: str
    """Name in the directory."""
    rows: int
    """Number of rows."""
    bytes: int
    """Size in bytes."""
    sha256: str
    """SHA-256 of its content."""


class ExportManifest(Model):
    """All data files of an export, and where their rows are from."""

    version: int = 1
    """Version of this form."""
    namespace: str
    """Namespace of the Backfill."""
    backfill: str
    """Name of the Backfill."""
    uid: str
    """Uid of the Backfill."""
    plan_id: str
    """ID of its plan."""
    output: str
    """Name of the output."""
    table: str
    """Table of the output."""
    snapshot_id: int
    """Snapshot of the branch that held the rows."""
    rows: int
    """Number of rows in all files."""
    bytes: int
    """Size of all files, in bytes."""
    files: tuple[ExportedFile, ...]
    """The data files, in the order of their names."""

    def of(self, result: Result) -> bool:
        """Whether these are the files of a result."""
        owner = (self.namespace, self.backfill, self.uid, self.plan_id, self.output)
        return owner == (
            result.namespace,
            result.backfill,
            result.uid,
            result.plan_id,
            result.output,
        )

    def status(self, location: str) -> ExportStatus:
        """The same for the status of the output."""
        return ExportStatus(
            location=location, files=len(self.files), rows=self.rows, bytes=self.bytes
        )


class ExportDirectory:
    """The directory of an output's files."""

    def __init__(self, output: Output, result: Result):
        """``output`` has a location."""
        self.location = (output.publish.location or "").rstrip("/")
        base, _, own = self.location.rpartition("/")
        if base in {"", "file://"}:
            base += "/"  # joined without it, a path would be relative, and a URI would name a host
        catalog = output.table.partition(".")[0]
        self._place = OwnDirectory(PyArrowFileIO(store_properties(catalog)), base, own)
        self._result = result
        parts = json.dumps([result.uid, result.plan_id, result.output])
        self._id = hashlib.sha256(parts.encode()).hexdigest()[:16]
        self._own = re.compile(rf"part-\d{{5,}}-{self._id}\.parquet")

    def data_file(self, number: int) -> str:
        """Name of a data file."""
        return f"part-{number:05d}-{self._id}.parquet"

    def names(self) -> set[str]:
        """The paths of all files below, relative to it.

        Raises:
            BackfillError: they cannot be listed.
        """
        with self._failing("be listed"):
            return {location.removeprefix(f"{self._place}/") for location in self._place.files()}

    def written(self) -> set[str]:
        """Data files of this result, complete or not, and what else its writers have left."""
        return {name for name in self.names() if self._is_own(name)}

    def foreign(self) -> list[str]:
        """Files that this result has not written, before its manifest is."""
        return sorted(name for name in self.names() if not self._is_own(name))

    def manifest(self) -> ExportManifest | None:
        """The manifest of this result; None if there is none, or that of something else.

        Raises:
            BackfillError: it cannot be read.
        """
        with self._failing("be read"):
            try:
                with self._place.open(self._path(MANIFEST)) as file:
                    text = file.read(_MOST_MANIFEST_BYTES)
            except FileNotFoundError:
                return None
        try:
            found = ExportManifest.model_validate(read_json_text(text))
        except (ValueError, ValidationError):
            return None
        # others may write there, too: only what an export writes is read or removed
        named = all(self._own.fullmatch(file.name) for file in found.files)
        return found if named and found.of(self._result) else None

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Writes or replaces a file.

        Raises:
            BackfillError: it cannot be written.
        """
        with self._failing("be written to"):
            self._place.write(self._path(name), chunks)

    def remove(self, names: Iterable[str]) -> None:
        """Removes files.

        Raises:
            BackfillError: one cannot be removed.
        """
        for name in names:
            if not self._place.remove(self._path(name)):
                raise BackfillError(f"{self._path(name)} cannot be removed")

    def digest(self, name: str) -> str | None:
        """SHA-256 of a file's content; None if there is no such file.

        Raises:
            BackfillError: it cannot be read.
        """
        content = Digested()
        with self._failing("be read"):
            try:
                with self._place.open(self._path(name)) as file:
                    for _ in content.chunks(file):
                        pass
            except FileNotFoundError:
                return None
        return content.sha256

    def _path(self, name: str) -> str:
        return f"{self._place}/{name}"

    def _is_own(self, name: str) -> bool:
        temporary = _TEMPORARY.fullmatch(name)
        if temporary is not None:
            name = temporary["name"]
            return name in {MANIFEST, SUCCESS, PROBE} or self._own.fullmatch(name) is not None
        return name == PROBE or self._own.fullmatch(name) is not None

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except BackfillError:
            raise
        except Exception as error:  # a FileIO raises whatever its client library raises
            raise BackfillError(f"{self.location} cannot {what}: {first_line(error)}") from error


class Digested:
    """Counts and digests what is read."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.bytes = 0

    @property
    def sha256(self) -> str:
        """SHA-256 of what was read so far."""
        return self._digest.hexdigest()

    def chunks(self, file: Readable) -> Iterator[bytes]:
        """The rest of a file."""
        while chunk := file.read(_CHUNK_BYTES):
            self._digest.update(chunk)
            self.bytes += len(chunk)
            yield chunk


def is_exported(output: Output, result: Result) -> bool:
    """Whether a result is exported.

    Raises:
        BackfillError: its directory cannot be read.
    """
    return ExportDirectory(output, result).manifest() is not None


def export(output: Output, result: Result, staged_snapshot_id: int | None) -> ExportStatus:
    """Copies a result's files to the output's directory, unless that is done already. It may be
    repeated after it was killed, and writes the same files again.

    ``staged_snapshot_id`` is the snapshot of the branch that was looked at; None: whatever it is.

    Raises:
        ResultLost: the result no longer exists.
        CanNotPublish: the directory has other files, or the result's files cannot be copied as they
            are.
        BackfillError: the directory cannot be accessed.
        BadInput: the table cannot be opened, or the branch holds something else.
    """
    place = ExportDirectory(output, result)
    done = place.manifest()
    if done is None:
        done = _copy(place, output, result, staged_snapshot_id)
        content = json.dumps(done.to_manifest(), indent=1)
        place.write(MANIFEST, (content.encode(),))
    place.write(SUCCESS, ())
    place.remove(sorted(place.written() - {file.name for file in done.files}))
    return done.status(place.location)


def check_exportable(output: Output, result: Result, staged_snapshot_id: int | None) -> None:
    """Checks whether a result could be exported now. The parameters and errors are those of
    :func:`export`; nothing is written.
    """
    place = ExportDirectory(output, result)
    if place.manifest() is None:
        table = Catalogs().load_table(output.table, "spec.outputs")
        _check_columns(table, output, final_files(table, output, result, staged_snapshot_id))
        _check_own(place)


def discard_unfinished(output: Output, result: Result, *, undoing: bool = False) -> None:
    """Removes what an export has written that was not finished, or not undone to its end. One that
    has its manifest stays, and is finished if it was killed right after that.

    Args:
        undoing: whether it may be its undo that was killed.

    Raises:
        BackfillError: the directory cannot be accessed.
    """
    if output.publish.location is None:
        return
    place = ExportDirectory(output, result)
    if place.manifest() is None:
        place.remove(sorted(place.written()))
    elif not undoing and SUCCESS not in place.names():
        place.write(SUCCESS, ())


class ExportUndo:
    """Undoes the export of one result."""

    rows_gained: int | None = None
    """An export replaces nothing."""

    def __init__(self, output: Output, result: Result):
        self._place = ExportDirectory(output, result)

    def check(self) -> None:
        """Checks that all files are as they were written, if they are there.

        Raises:
            CanNotUndo: some were changed or removed.
            BackfillError: the directory cannot be accessed.
        """
        if self._changed:
            raise CanNotUndo(
                f"files in {self._place.location} were changed or removed since they were"
                f" published: {_named(self._changed)}; remove {MANIFEST} and the files by hand"
            )

    def run(self) -> None:
        """Removes the manifest, so that nothing is published any more, and then the files.

        Raises:
            CanNotUndo: some were changed or removed.
            BackfillError: the directory cannot be accessed.
        """
        self.check()
        if self._place.manifest() is not None:
            # without the manifest it would be unknown whose _SUCCESS it is
            self._place.remove(sorted({SUCCESS} & self._place.names()))
            self._place.remove((MANIFEST,))
        self._place.remove(sorted(self._place.written()))

    @cached_property
    def _changed(self) -> list[str]:
        """The files that are not as they were written. All of them are read, and only once."""
        manifest = self._place.manifest()
        if manifest is None:
            # an undo that was killed has removed both before any data file
            left = self._place.names() & {MANIFEST, SUCCESS}
            return [MANIFEST] if left and self._place.written() else []
        with ThreadPoolExecutor(_COPIES_AT_ONCE) as readers:
            digests = readers.map(lambda file: self._place.digest(file.name), manifest.files)
            found = list(zip(manifest.files, digests, strict=True))
        return [file.name for file, digest in found if digest != file.sha256]


def _copy(
    place: ExportDirectory, output: Output, result: Result, staged_snapshot_id: int | None
) -> ExportManifest:
    table = Catalogs().load_table(output.table, "spec.outputs")
    files = final_files(table, output, result, staged_snapshot_id)
    files = sorted(files, key=lambda file: file.file_path)
    _check_columns(table, output, files)
    _check_own(place)
    head = branch_head(table.metadata, result)
    if head is None:
        raise lost(output.table, result)

    def read(file: DataFile, content: Digested) -> Iterator[bytes]:
        with (
            _reading(output, file),
            table.io.new_input(file.file_path).open(seekable=False) as source,
        ):
            yield from content.chunks(source)

    def copy(number: int, file: DataFile) -> ExportedFile:
        content, name = Digested(), place.data_file(number)
        place.write(name, read(file, content))
        return ExportedFile(
            name=name, rows=file.record_count, bytes=content.bytes, sha256=content.sha256
        )

    with ThreadPoolExecutor(_COPIES_AT_ONCE) as copies:
        copied = tuple(copies.map(copy, range(len(files)), files))
    _check_own(place)  # somebody else may have begun to write there meanwhile
    return ExportManifest(
        namespace=result.namespace,
        backfill=result.backfill,
        uid=result.uid,
        plan_id=result.plan_id,
        output=result.output,
        table=output.table,
        snapshot_id=head.snapshot_id,
        rows=sum(file.rows for file in copied),
        bytes=sum(file.bytes for file in copied),
        files=copied,
    )


def _check_own(place: ExportDirectory) -> None:
    if foreign := place.foreign():
        raise CanNotPublish(f"{not_own(place.location, foreign)}; move them elsewhere")


def not_own(location: str, foreign: Sequence[str]) -> str:
    """What is wrong with a directory in which others have files."""
    files = count(len(foreign), "file")
    return (
        f"{location} contains {files} that this Backfill has not written ({_named(foreign)}), but"
        " an export needs a directory of its own"
    )


def _check_columns(table: Table, output: Output, files: Sequence[DataFile]) -> None:
    """Readers of a table find a column by its ID, readers of files by its name."""

    def columns(file: DataFile) -> pa.Schema:
        with _reading(output, file), table.io.new_input(file.file_path).open() as stream:
            return pq.read_schema(stream).remove_metadata()

    with ThreadPoolExecutor(_COPIES_AT_ONCE) as readers:
        schemas = list(readers.map(columns, files))
    if any(not schema.equals(schemas[0]) for schema in schemas):
        raise CanNotPublish(
            f"the columns of {output.table} were changed between two attempts, and the files of"
            " both kinds cannot be read together; start over with a new Backfill"
        )


@contextmanager
def _reading(output: Output, file: DataFile) -> Iterator[None]:
    """Adds to an error which file of the result it is about."""
    try:
        yield
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise CanNotPublish(
            f"{file.file_path}, a data file of the result of output {output.name}, is missing or"
            f" damaged: {first_line(error)}; restore it and retry, or start over with a new"
            " Backfill"
        ) from error
    except Exception as error:  # a FileIO raises whatever its client library raises
        raise BackfillError(f"{file.file_path} cannot be read: {first_line(error)}") from error


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"
