"""What a test needs and this machine does not have."""

import os
from typing import NoReturn

import pytest


def skip(reason: str) -> NoReturn:
    """Leaves the test out. Where ``CI`` is set nothing may be left out, and it fails."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
