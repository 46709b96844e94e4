"""What the tasks of a step read of a source: it depends on the plan alone, so that a step is always
read in the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from backfill.api.spec import OrderingPolicy
from backfill.planning.plan import PlanSplits, Split, read_header
from backfill.planning.workspace import Workspace
from backfill.runtime.source.task_packing import pack_by_bytes, pack_by_kafka_partition

_EVENLY = 0.1
"""Part of a rate that tasks share evenly, whatever rows they are expected to have."""


@dataclass(frozen=True, slots=True)
class StepTask:
    """What one task reads of a source in a step."""

    splits: tuple[Split, ...]
    rows_per_second: float | None = None
    """Most rows that are read in a second; None if there is no limit."""


class StepTasks:
    """The tasks of a source."""

    def __init__(self, plan: Workspace, source: str, rate: int | None = None):
        """``rate`` is the most rows of all sources that are read in a second, if there is a limit.

        Raises:
            PlanCorrupt: a file of the plan is damaged or missing.
        """
        self._plan = plan
        self._source = source
        self._rate = rate
        self._header = read_header(plan)

    def of(self, step: int) -> list[StepTask]:
        """The tasks of a step, as many as the plan has or fewer; none for the flush, and for steps
        without rows of this source.

        Raises:
            PlanCorrupt: a file of the plan is damaged or missing.
        """
        if step >= self._header.steps:
            return []
        splits = planned_splits(self._plan).of_steps(range(step, step + 1), self._source)
        inputs = self._header.inputs
        pack = pack_by_kafka_partition if inputs.policy is OrderingPolicy.STRICT else pack_by_bytes
        packed = pack(splits, inputs.parallelism)
        return [
            StepTask(part, rate)
            for part, rate in zip(packed, self._rates(step, packed), strict=True)
        ]

    def _rates(self, step: int, tasks: Sequence[Sequence[Split]]) -> list[float | None]:
        """What each task may read in a second, so that all tasks of a step together need as long as
        its rows of all sources may take. A part of the rate is shared evenly: rows of time slices
        are estimates, and a task with far more of them than expected would not end.
        """
        if self._rate is None:
            return [None] * len(tasks)
        expected = [sum(map(_expected_rows, splits)) for splits in tasks]
        sources = self._header.sources
        mine = sum(each.step_rows[step] for each in sources if each.name == self._source)
        of_source = self._rate * (1 - _EVENLY) * mine / max(self._header.rows_of_step(step), 1)
        even = self._rate * _EVENLY / len(sources) / max(len(tasks), 1)
        return [of_source * rows / max(sum(expected), 1) + even for rows in expected]


def _expected_rows(split: Split) -> int:
    """Rows that a task reads of a split. In ``Strict`` order several tasks read it, each those of
    its own offsets.
    """
    return sum(each.end - each.start for each in split.offsets) or split.rows


@lru_cache(maxsize=1)
def planned_splits(plan: Workspace) -> PlanSplits:
    """The splits of a plan, read once in this process.

    Raises:
        PlanCorrupt: a file of the plan is damaged or missing.
    """
    return PlanSplits(plan)
