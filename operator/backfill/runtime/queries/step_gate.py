"""Holds back the micro-batches of a stream. For Spark's clock the next step is always there: its
batch begins, and waits where its sink asks for the rows.

Some plans are computed in part before: shuffles of adaptive execution, samples of rows that are
sorted, and what is broadcast. These parts are read a step ahead, but give nothing to a sink before.
"""

from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from backfill.runtime.catalyst import is_of_active_query, was_interrupted
from backfill.runtime.queries.run_state import Run
from backfill.runtime.source.clock import Announcement
from backfill.runtime.source.step_tasks import StepTasks

_LOOK_SECONDS = 0.2
"""How often a batch that waits looks whether its query is being stopped."""


_INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling Thread.sleep.\n"
    ": java.lang.InterruptedException"
)
"""By this text Spark knows that a query was stopped and has not failed. It looks for it by a
pattern that needs a deeper stack the longer a text is: Py4J's, with Java's trace, is too long.
"""


class Interrupted(Exception):  # noqa: N818 - not an error: the query is stopped
    """A batch that waits for its step is given up, because its query is stopped."""


class StepGate:
    """The steps of one query."""

    def __init__(self, run: Run, spark: SparkSession, query: str, used: Mapping[str, Set[str]]):
        """``spark`` starts the query, and ``used`` are, by source, the columns that it uses.

        Raises:
            PlanCorrupt: a file of the plan is damaged or missing.
        """
        self._run = run
        self._spark = spark
        self._query = query
        plan, rate = run.settings.plan_workspace, run.settings.max_rows_per_second
        self._sources = [
            (name, StepTasks(plan, name, rate), columns) for name, columns in used.items()
        ]
        self._said: tuple[int, list[Announcement]] = (-1, [])
        """The last step that was announced, and what its tasks read."""

    @contextmanager
    def announced(self, spark: SparkSession, step: int) -> Iterator[None]:
        """Says what is read of a step to the tasks of jobs, and to queries, that this thread starts
        meanwhile.

        Raises:
            PlanCorrupt: a file of the plan is damaged or missing.
        """
        with ExitStack() as stack:
            for each in self._of(step):
                stack.enter_context(each.made(spark))
            yield

    @contextmanager
    def open(self, spark: SparkSession, step: int) -> Iterator[None]:
        """Waits until a step may be read, and says to the tasks of this thread's jobs what they
        read. The sink of the batch with this number uses its rows within.

        Raises:
            Interrupted: the query is stopped meanwhile.
            PlanCorrupt: a file of the plan is damaged or missing.
        """
        while not self._run.wait_for_step(step, _LOOK_SECONDS):
            # Spark 3.5 loses some interrupts between two batches
            if was_interrupted(spark) or not is_of_active_query(self._spark):
                raise Interrupted(_INTERRUPTED)
        self._run.tracker.begin(self._query, step)
        for each in self._of(step):
            each.make(spark)
        yield
        for each in self._of(step + 1):
            each.make(spark)

    def _of(self, step: int) -> list[Announcement]:
        known, said = self._said
        if known != step:
            said = [
                Announcement.of(name, step, tasks.of(step), columns)
                for name, tasks, columns in self._sources
            ]
            self._said = step, said
        return said
