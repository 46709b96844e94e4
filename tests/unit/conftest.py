"""Fixtures that tests of several rooms use."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from local_runs import LocalRuns


@pytest.fixture
def runs(tmp_path: Path, lake: Catalog) -> Iterator[LocalRuns]:
    made = LocalRuns(tmp_path, lake)
    yield made
    made.close()
