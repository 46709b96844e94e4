"""What a job says of catalogs that it does not open."""

from collections.abc import Iterable

from backfill.api.errors import BadInput
from backfill.controller.jobs.any_job import JobState


def refusals(state: JobState, catalogs: Iterable[str]) -> dict[str, str]:
    """What a plan job over the table ``raw.clicks`` of each of these catalogs said, by catalog. It
    says nothing else.
    """
    if state.phase == "Done":
        return {}
    assert isinstance(state.error, BadInput), state
    texts = [str(problem) for problem in state.error.problems]
    named = {
        name: [t for t in texts if f"{name}.raw.clicks" in t or f"catalog {name} " in t]
        for name in catalogs
    }
    assert sum(map(len, named.values())) == len(texts), texts
    return {name: " ".join(found) for name, found in named.items() if found}
