"""What is kept of a query's trigger."""

from typing import Any
from unittest.mock import MagicMock

import pytest

from backfill.runtime.switching.stream_writer import ReplacedWriter


@pytest.mark.parametrize(
    ("trigger", "ends"),
    [
        ({"availableNow": True}, True),
        ({"once": True}, True),
        ({"processingTime": "1 minute"}, False),
        ({"realTime": "1 minute"}, False),
    ],
)
def test_a_query_ends_by_its_last_trigger(trigger: dict[str, Any], *, ends: bool) -> None:
    writer = ReplacedWriter(MagicMock(), MagicMock())
    assert not writer._target.ends
    writer.trigger(**({"processingTime": "1 minute"} if ends else {"once": True}))
    writer.trigger(**trigger).queryName("counts")
    assert writer._target.ends == ends
