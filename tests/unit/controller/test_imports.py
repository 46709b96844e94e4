"""What a controller's own process holds in memory: tables are opened in the processes of jobs."""

import subprocess
import sys

import pytest

from waiting import PATIENCE_SECONDS

HEAVY = {"numpy", "pandas", "pyarrow", "pyiceberg", "pyspark", "sqlalchemy"}


@pytest.mark.parametrize(
    "module", ["backfill.controller.local.loop", "backfill.controller.manager.handlers"]
)
def test_a_controller_imports_nothing_that_opens_tables(module: str) -> None:
    program = (
        f"import sys, {module}; print(*sorted(name for name in sys.modules if '.' not in name))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert HEAVY.isdisjoint(done.stdout.split())
