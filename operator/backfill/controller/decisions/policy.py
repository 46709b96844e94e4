"""How a run that a person watches in a terminal differs from one on a cluster."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Policy:
    """All differences between the two. Decisions depend on nothing else."""

    patient: bool
    """Whether missing objects and failures outside the application are waited for and retried.
    Otherwise they end the run, and the person who reads the error starts it again, except where a
    server is unavailable for a moment: ``failurePolicy`` then applies to jobs as it does to
    attempts.
    """
    screen: bool
    """Whether a screen shows progress and next commands, so that conditions need not."""
    one_process: bool
    """Whether Spark is one process on this machine: without executors to scale, pods to size, or
    Backfills of other owners.
    """
    header_may_be_lost: bool
    """Whether the plan header is stored apart from the workspace, from which it can be restored."""
    abandons_removals: bool
    """Whether a deletion completes after a time limit although something may be left. Otherwise the
    person decides when to give up.
    """


LOCAL: Final = Policy(
    patient=False, screen=True, one_process=True, header_may_be_lost=False, abandons_removals=False
)
CLUSTER: Final = Policy(
    patient=True, screen=False, one_process=False, header_may_be_lost=True, abandons_removals=True
)
