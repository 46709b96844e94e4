"""Tables of cases."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest


def cases(names: str | Sequence[str], rows: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Runs a test with each row of a table. The keys say what the rows are about."""
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))
