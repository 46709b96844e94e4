"""Fixtures of the command line's tests."""

import sys
from pathlib import Path

import pytest

from backfill.cli.main import main
from local_runs import Command, Ended


@pytest.fixture
def backfill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    """Runs the program in this process, in a directory of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["backfill", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return Ended(int(end.value.code or 0), out, err)

    return run
