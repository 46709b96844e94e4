"""Whose a part of a workspace is: that of a namespace and name. Backfills that are stored in
different clusters or state directories may have the same ones, and the same workspace.
"""

from contextlib import suppress

from pydantic import ValidationError

from backfill.api.backfill import MOST_PLACE_CHARACTERS
from backfill.api.base import Model
from backfill.api.errors import Problem
from backfill.planning.workspace import Workspace

_DIRECTORY = "owner"
_FILE = f"{_DIRECTORY}/backfill.json"
_MOST_BYTES = 8 * MOST_PLACE_CHARACTERS


class _Owner(Model):
    uid: str
    """Uid of the Backfill."""
    kept_in: str
    """Which cluster or state directory it is stored in."""


def claim(workspace: Workspace, uid: str, kept_in: str) -> Problem | None:
    """Makes a Backfill the owner of its part of a workspace. Returns the problem if it belongs to
    one that is stored somewhere else, and may still run.

    An earlier one of the same place is gone. A workspace that cannot be used is no problem here:
    planning says so.
    """
    with suppress(OSError, ValueError):
        owner = _owner(workspace)
        if owner is not None and owner.uid != uid and owner.kept_in != kept_in:
            return _taken(workspace, owner)
        if owner is None or (owner.uid, owner.kept_in) != (uid, kept_in):
            workspace.write(_FILE, _Owner(uid=uid, kept_in=kept_in).model_dump_json().encode())
    return None


def belongs_to_another(workspace: Workspace, uid: str) -> bool:
    """Whether another Backfill is the owner of a part of a workspace."""
    owner = _owner(workspace)
    return owner is not None and owner.uid != uid


def disclaim(workspace: Workspace) -> None:
    """Removes what says whose it is."""
    workspace.child(_DIRECTORY).remove()


def _owner(workspace: Workspace) -> _Owner | None:
    """The owner as it is recorded; None if there is none."""
    if not workspace.exists(_FILE):
        return None
    try:
        return _Owner.model_validate_json(workspace.read(_FILE, _MOST_BYTES))
    except ValidationError:
        return None


def _taken(workspace: Workspace, owner: _Owner) -> Problem:
    place = owner.kept_in or "another place"
    return Problem(
        "spec.workspace",
        f"{workspace.uri} belongs to a Backfill with the same namespace and name in {place}",
        "delete that Backfill, or the files of this workspace if that Backfill no longer exists,"
        " or set another workspace",
    )
