"""Fixtures that tests of several rooms use."""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from local_runs import LocalRuns


@pytest.fixture
def runs(tmp_path: Path, lake: Catalog) -> LocalRuns:
    return LocalRuns(tmp_path, lake)
