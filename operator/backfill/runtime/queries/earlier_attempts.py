"""State that earlier attempts left: their checkpoints,
which are authoritative, and the last report.
"""

import json
from urllib.parse import quote

from backfill.planning.workspace import Workspace


def checkpoint_of(identity: str, checkpoints: Workspace) -> Workspace:
    """Checkpoint of a query, by what distinguishes it. It is the same for every attempt, whatever
    characters the output's name has. Staged batches are numbered by it.
    """
    return checkpoints.child(quote(identity, safe=""))


def committed_steps(checkpoint: Workspace) -> int:
    """Number of steps that a query has committed, by its commit log.

    Batch ``k`` of a query is step ``k``: every offset of a source is one step further, and there is
    no batch without a step. So it is the number of the last committed batch plus one.
    """
    names = checkpoint.names("commits")
    return max((int(name) + 1 for name in names if name.isdigit()), default=0)


def begun_with(checkpoint: Workspace) -> dict[str, str]:
    """The Spark properties that a query began with, which Spark uses for it from then on, whatever
    the session has; empty for a query that has read nothing.
    """
    numbers = [int(name) for name in checkpoint.names("offsets") if name.isdigit()]
    if not numbers:
        return {}
    _, metadata, *_ = checkpoint.read(f"offsets/{max(numbers)}").decode().split("\n")
    return {str(key): str(value) for key, value in json.loads(metadata).get("conf", {}).items()}
