"""How a run that a person watches at a terminal differs from one that an operator looks after."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything in which the two differ; decisions ask for nothing else."""

    patient: bool
    """What is missing, or fails outside the application, is waited for and tried again. Otherwise it ends the run at once: the
    person reads it and starts the run again."""
    screen: bool
    """Progress and next commands are shown on a screen, and need no place in conditions."""
    one_process: bool
    """Spark is one process of this machine: no executors to scale, no pods to size, no other owner's Backfills."""
    header_may_be_lost: bool
    """The plan header is kept apart from the workspace, from which it can be read again."""
    abandons_removals: bool
    """A deletion is completed after some time although something may be left. Otherwise the person decides when to give up."""


LOCAL: Final = Policy(patient=False, screen=True, one_process=True, header_may_be_lost=False, abandons_removals=False)
CLUSTER: Final = Policy(patient=True, screen=False, one_process=False, header_may_be_lost=True, abandons_removals=True)
