"""Models in files that other processes replace."""

from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from backfill.api.base import Model
from backfill.api.errors import BackfillError

M = TypeVar("M", bound=Model)
Version = tuple[int, int, int] | None
"""Differs between two contents of a file; None if there is no file."""


def version_of(path: Path) -> Version:
    """The version of a file that is always replaced as a whole."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def read_model(path: Path, model: type[M]) -> M:
    """The model in a file.

    Raises:
        BackfillError: the file is damaged, or was written by another version.
        OSError: it cannot be read.
    """
    try:
        return model.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise damaged(path, error.errors()[0]["msg"]) from error


def damaged(path: Path, why: str) -> BackfillError:
    """The error for a file of the state directory that cannot be read."""
    return BackfillError(
        f"{path} is damaged, or was written by another version: {why}; restore it from a backup, or"
        f" remove the Backfill's directory in the state directory and run it again"
    )


class CachedModel(Generic[M]):
    """A model in a file, parsed only if the file was replaced."""

    def __init__(self, path: Path, model: type[M]):
        self._path = path
        self._model = model
        self._version: Version = None
        self._value: M | None = None

    def read(self) -> M | None:
        """The content; None if there is no file.

        Raises:
            pydantic.ValidationError: the content is not valid.
        """
        version = version_of(self._path)
        if version is None:
            self._version = self._value = None
        elif version != self._version:
            self._value = self._model.model_validate_json(self._path.read_bytes())
            self._version = version
        return self._value
