"""What the operator keeps in memory of the Backfills that it watches."""

from typing import Any

import pytest

from backfill.controller.manager.wiring import Caches
from manifests import BACKFILL, changed

HUGE = {"overrides": {"driver": {"template": [0] * 10_000, "labels": {"a": "b"}}}}


@pytest.mark.hostile
@pytest.mark.parametrize("place", ["spec", "spec.handOff"])
def test_overrides_that_are_refused_for_their_size_take_no_memory(place: str) -> None:
    given = {f"{place}.{name}": value for name, value in HUGE.items()}
    manifest = changed(BACKFILL, {f"{place}.suspend": True, **given})
    caches = Caches()
    metadata = {**manifest["metadata"], "uid": "1", "resourceVersion": "1"}
    caches.backfills.put({**manifest, "metadata": metadata})
    kept: Any = caches.backfills.get("streaming", "july")
    for part in place.split("."):
        kept = kept[part]
    driver = kept["overrides"]["driver"]
    assert isinstance(driver["template"], str)
    assert driver["labels"] == {"a": "b"}
