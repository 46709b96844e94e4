"""Files of its own machine that a process may use.

One that works for others must not give away its own.
"""

import os
from pathlib import Path
from typing import Final

_SCHEMES: Final = frozenset(
    {"s3", "s3a", "s3n", "oss", "gs", "gcs", "abfs", "abfss", "wasb", "wasbs", "file"}
)
"""Schemes of locations that are opened for others."""


class OutOfReach(ValueError):  # noqa: N818 - what it is for the caller
    """Something that this process does not do for others. ``str()`` says what and why, and repeats
    nothing of a server.
    """


class BadAnswer(Exception):  # noqa: N818 - what came, or did not
    """A server does not answer as expected.

    ``str()`` says how, and repeats nothing of its answer.
    """


class _Limits:
    """The directories that may be used; None for all."""

    directories: tuple[Path, ...] | None = None


def limit(directories: tuple[Path, ...]) -> None:
    """Makes this process, permanently, accept only tables and
    workspaces below these directories of this machine.
    """
    _Limits.directories = tuple(directory.resolve() for directory in directories)


def limited() -> bool:
    """Whether this process works for others."""
    return _Limits.directories is not None


def require_local(path: str) -> None:
    """Checks that a path of this machine may be used.

    Raises:
        OutOfReach: it may not be used.
    """
    allowed = _Limits.directories
    if allowed is None:
        return
    place = Path(os.path.realpath(path))
    if not any(place.is_relative_to(directory) for directory in allowed):
        listed = f"below {', '.join(map(str, allowed))} only" if allowed else "nowhere"
        raise OutOfReach(
            f"{path} is a path on the operator's own disk, which tables and workspaces may use"
            f" {listed}: use an object store, set planning.runIn: Pod, or add its directory to the"
            " operator's --local-directories"
        )


def require_location(scheme: str, path: str) -> None:
    """Checks that a location may be opened.

    Raises:
        OutOfReach: it may not be opened.
    """
    if _Limits.directories is None:
        return
    if scheme not in _SCHEMES:
        raise OutOfReach(
            f"{scheme}: locations are not opened in the operator; set planning.runIn: Pod"
        )
    if scheme == "file":
        require_local(path)
