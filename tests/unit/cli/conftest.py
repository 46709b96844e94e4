"""Fixtures of the command line's tests."""

from pathlib import Path

import pytest

from backfill.cli.main import main
from local_runs import Command, Ended, run_here


@pytest.fixture
def backfill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    """Runs the program in this process, in a directory of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ended:
        return run_here(main, monkeypatch, capfd, "backfill", *arguments)

    return run
