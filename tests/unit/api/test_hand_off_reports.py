"""Reports of a hand-off come from drivers, which are not trusted."""

import pytest
from pydantic import ValidationError

from backfill.protocol.hand_off_messages import HandOffSource


def test_offsets_are_those_of_numbered_partitions() -> None:
    given = {"source": "events", "topic": "events", "partitions": 2}
    offsets = {"0": 7, "1": 9}
    assert HandOffSource.model_validate(given | {"offsets": offsets}).offsets == offsets
    for key in ("", "-1", "\x1b[2J", "\u0663", "1" * 11, "x" * 100_000):
        with pytest.raises(ValidationError, match="not the number of a partition"):
            HandOffSource.model_validate(given | {"offsets": {key: 7}})
