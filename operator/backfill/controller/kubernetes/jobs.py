"""Where the jobs of a Backfill are done: in processes of the operator or in pods, as its spec says at the time."""

from collections.abc import Callable

from backfill.api.backfill import Backfill
from backfill.controller.interfaces import JobRunner
from backfill.controller.jobs import Job, JobState


class ChosenJobs:
    """The jobs of one Backfill, wherever they are done."""

    def __init__(self, find: Callable[[], Backfill | None], in_operator: JobRunner, in_pod: JobRunner):
        """``find``: the Backfill as it is now."""
        self._find = find
        self._in_operator = in_operator
        self._in_pod = in_pod
        self._chosen: JobRunner | None = None

    @property
    def state(self) -> JobState | None:
        """The job under way or done last."""
        return self._chosen.state if self._chosen is not None else None

    def start(self, job: Job) -> None:
        """Begins a job and abandons one that is under way."""
        backfill = self._find()
        in_pod = backfill is not None and backfill.spec.planning.run_in == "Pod"
        chosen = self._in_pod if in_pod else self._in_operator
        if self._chosen not in (None, chosen):
            self.cancel()
        self._chosen = chosen
        chosen.start(job)

    def cancel(self) -> None:
        """Abandons the job under way and forgets the last one."""
        if self._chosen is not None:
            self._chosen.cancel()
        self._chosen = None

    def close(self) -> None:
        """Ends for good."""
        self._in_operator.close()
        self._in_pod.close()
