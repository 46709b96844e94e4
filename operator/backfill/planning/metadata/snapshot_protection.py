"""Protects the snapshots that a plan reads from expiration, with tags."""

from collections.abc import Iterable

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from backfill.api.errors import BackfillError, InvalidPlanInput, Problem, first_line
from backfill.iceberg.format_v3 import write_v3_metadata
from backfill.iceberg.open_tables import Catalogs
from backfill.planning.plan import SourceInput

_TRIES = 5
"""Attempts at a commit. Others may commit to a source table all the time; a tag does not conflict
with their changes, but may lose the race.
"""


def protect(source: SourceInput, tag: str, field: str) -> None:
    """Tags the snapshot that a source reads. A tag that an earlier plan has left is moved.

    Raises:
        InvalidPlanInput: the table cannot be written.
    """
    write_v3_metadata()
    table = Catalogs().load_source(source.table, field)
    for _ in range(_TRIES):
        tagged = table.refresh().metadata.refs.get(tag)
        if tagged is not None and tagged.snapshot_id == source.snapshot_id:
            return
        try:
            table.manage_snapshots().create_tag(source.snapshot_id, tag).commit()
        except CommitFailedException:
            continue
        except Exception as error:  # catalogs raise whatever their client libraries raise
            message = f"the snapshot of {source.table} cannot be tagged: {first_line(error)}"
            fix = (
                "give the controller write permission on the table,"
                " or set snapshot.protect to false"
            )
            raise InvalidPlanInput(Problem(f"{field}.snapshot.protect", message, fix)) from error
        return
    message = (
        f"the snapshot of {source.table} cannot be tagged: every attempt conflicted with another"
        " commit"
    )
    raise InvalidPlanInput(Problem(f"{field}.snapshot.protect", message, "retry"))


def unprotect(table_names: Iterable[str], tag_prefix: str) -> None:
    """Removes the tags with this prefix. Tables that no longer exist are skipped.

    Raises:
        BackfillError: other commits came first each time, or a catalog does not answer.
    """
    write_v3_metadata()
    for name in dict.fromkeys(table_names):
        try:
            table = Catalogs().load_source(name, "spec.sources")
        except InvalidPlanInput as error:
            if error.may_pass:
                raise
            continue
        for _ in range(_TRIES):
            if _without_tags(table, tag_prefix):
                break
        else:
            raise BackfillError(
                f"the tags {tag_prefix}* of {name} cannot be removed: every attempt conflicted"
                " with another commit"
            )


def _without_tags(table: Table, prefix: str) -> bool:
    tags = [tag for tag in table.refresh().metadata.refs if tag.startswith(prefix)]
    try:
        for tag in tags:
            table.manage_snapshots().remove_tag(tag).commit()
    except CommitFailedException:
        return False
    return True
