"""State that earlier attempts left: their checkpoints,
which are authoritative, and the last report.
"""

from urllib.parse import quote

from backfill.planning.workspace import Workspace


def checkpoint_of(output: str, checkpoints: Workspace) -> Workspace:
    """Checkpoint of the query that writes an output. It is the same for every attempt, whatever
    characters the output's name has. The name of the query may differ between attempts, and staged
    batches are numbered by the checkpoint.
    """
    return checkpoints.child(quote(output, safe=""))


def committed_steps(checkpoint: Workspace) -> int:
    """Number of steps that a query has committed, by its commit log.

    Batch ``k`` of a query is step ``k``: every offset of a source is one step further, and there is
    no batch without a step. So it is the number of the last committed batch plus one.
    """
    names = checkpoint.names("commits")
    return max((int(name) + 1 for name in names if name.isdigit()), default=0)
