"""What an earlier attempt left: read from the checkpoints, which are the truth, and from its last
report.
"""

from urllib.parse import quote

from backfill.planning.workspace import Workspace


def checkpoint_of(output: str, checkpoints: Workspace) -> Workspace:
    """Where the query that writes an output keeps its checkpoint: the same place for every attempt,
    whatever characters the output's name has. The query's own name may differ from one attempt to
    the next, and what is staged counts its batches.
    """
    return checkpoints.child(quote(output, safe=""))


def committed_steps(checkpoint: Workspace) -> int:
    """How many steps a query has committed, by its commit log.

    Batch ``k`` of a query is step ``k``, because every offset a source gives is one step further
    and no batch is made without one; so the number of the last committed batch tells it.
    """
    names = checkpoint.names("commits")
    return max((int(name) + 1 for name in names if name.isdigit()), default=0)
