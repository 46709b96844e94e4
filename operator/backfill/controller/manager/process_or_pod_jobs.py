"""Runs the jobs of a Backfill in processes of the operator or in pods,
as its spec says when they start.
"""

from collections.abc import Callable

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput, Problem
from backfill.controller.interfaces import JobRunner
from backfill.controller.jobs.any_job import Job, JobState


class ChosenJobs:
    """The jobs of one Backfill, wherever they run."""

    def __init__(
        self,
        find: Callable[[], Backfill | None],
        in_operator: JobRunner,
        in_pod: JobRunner,
        operator_may: Callable[[str], bool] = lambda namespace: True,
        on_refused: Callable[[], None] = lambda: None,
    ):
        """Keeps what jobs run with.

        Args:
            find: returns the Backfill as it is now.
            in_operator: runs jobs in processes of the operator.
            in_pod: runs jobs in pods.
            operator_may: whether jobs of a namespace may run in the operator.
            on_refused: called with the new state of a job that was refused.
        """
        self._on_refused = on_refused
        self._find = find
        self._operator_may = operator_may
        self._refused: JobState | None = None
        self._in_operator = in_operator
        self._in_pod = in_pod
        self._chosen: JobRunner | None = None

    @property
    def state(self) -> JobState | None:
        """The job in progress, or the last one."""
        return self._refused or (self._chosen.state if self._chosen is not None else None)

    def start(self, job: Job) -> None:
        """Starts a job. A job in progress is abandoned."""
        backfill = self._find()
        in_pod = backfill is not None and backfill.spec.planning.run_in == "Pod"
        self._refused = None
        if (
            backfill is not None
            and not in_pod
            and not self._operator_may(backfill.metadata.namespace)
        ):
            self.cancel()
            self._refused = JobState(
                job, "Failed", error=BadInput(_not_here(backfill.metadata.namespace))
            )
            self._on_refused()
            return
        chosen = self._in_pod if in_pod else self._in_operator
        if self._chosen not in (None, chosen):
            self.cancel()
        self._chosen = chosen
        chosen.start(job)

    def cancel(self) -> None:
        """Abandons the job in progress and forgets the last one."""
        if self._chosen is not None:
            self._chosen.cancel()
        self._chosen, self._refused = None, None

    def close(self) -> None:
        """Ends all work; nothing can be started afterwards."""
        self._in_operator.close()
        self._in_pod.close()


def _not_here(namespace: str) -> Problem:
    return Problem(
        "spec.planning.runIn",
        f"jobs of namespace {namespace} may not run in the operator",
        "set planning.runIn: Pod, or add the namespace to the operator's --plan-in-operator-for",
    )
