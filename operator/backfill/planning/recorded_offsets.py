"""The offsets after history, as the driver that has determined them keeps them beside the
checkpoints.
"""

import json
from collections.abc import Mapping

from backfill.planning.workspace import Workspace

_MOST_BYTES = 64 * 2**20
"""More than a million partitions take."""


def offsets_file(own_id: str, source: str) -> str:
    """Name of the file with the offsets after the rows of a plan, by
    :meth:`backfill.planning.plan.PlanInputs.own_id`.
    """
    return f"_offsets-{own_id}-{source}.json"


def starts_file(plan_id: str, source: str) -> str:
    """Name of the file with the first offsets of partitions without rows, by the ID of a
    Backfill's first plan.
    """
    return f"_starts-{plan_id}-{source}.json"


def write_offsets(kept: Workspace, name: str, offsets: Mapping[int, int]) -> None:
    """Records offsets by Kafka partition in a file."""
    kept.write_sealed(name, json.dumps(dict(offsets)).encode())


def read_offsets(kept: Workspace, name: str) -> dict[int, int] | None:
    """Offsets by Kafka partition in a file; None if there is none.

    Raises:
        ValueError: the file is damaged or too large, or does not have such offsets.
    """
    if not kept.exists(name):
        return None
    recorded = json.loads(kept.read_sealed(name, _MOST_BYTES))
    return {int(each): int(offset) for each, offset in recorded.items()}
