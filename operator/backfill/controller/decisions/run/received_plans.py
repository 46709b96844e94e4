"""Whether a plan that a job returns can be one of its Backfill. The pod of a job has the identity
of a team, so nothing else is decided by its plan before that is known.
"""

from itertools import pairwise

from backfill.api.backfill import Backfill
from backfill.api.quantities import from_us
from backfill.api.status import BackfillStatus
from backfill.planning.plan import PlanHeader

_MOST = 10**15
"""Most files, rows or bytes of a source."""


def is_of_status(header: PlanHeader, status: BackfillStatus) -> bool:
    """Whether it is the plan that the status names, unchanged."""
    return (header.inputs.own_id(), header.digest) == (status.newest_plan_id, status.plan_digest)


def mistake(header: PlanHeader, backfill: Backfill) -> str:
    """Why a plan is not one of a Backfill, in words; empty if it may be."""
    inputs, names = header.inputs, [source.name for source in backfill.spec.sources]
    if header.plan_id != inputs.plan_id():
        return f"its ID is {header.plan_id[:16]}, but that of its inputs is {inputs.plan_id()}"
    if [source.name for source in header.sources] != names:
        return f"its sources are not {', '.join(names)}"
    starts, ends, sources = header.step_starts_us, header.step_ends_us, header.sources
    each_step = (ends, *(one.step_rows for one in sources))
    if not starts or any(len(each) != len(starts) for each in each_step):
        return "its steps and the rows in them differ in number"
    if any(later <= earlier for earlier, later in pairwise(starts)):
        return "its steps are not in the order of time"
    amounts = [
        *((one.files, one.rows, one.bytes) for one in sources),
        *(each for one in sources for each in (one.step_rows, one.step_bytes)),
    ]
    if any(min(each, default=0) < 0 or max(each, default=0) > _MOST for each in amounts):
        return "it has a number of files, rows or bytes that no table has"
    times = (starts[0], starts[-1], min(ends), max(ends), inputs.start_us, inputs.end_us)
    try:
        for time_us in (*times, inputs.read_start_us, inputs.read_end_us):
            from_us(time_us)
    except OverflowError:
        return "it has a time before the year 1 or after the year 9999"
    return ""
