"""What the command line imports: a help text comes at once, and says what is missing where
something is.
"""

import subprocess
import sys

import pytest

from waiting import PATIENCE_SECONDS

SLOW = {"kubernetes", "numpy", "pandas", "pyarrow", "pydantic", "pyiceberg", "pyspark", "yaml"}


def python(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.parametrize("program", ["backfill", "kubectl-backfill"])
def test_a_help_text_waits_for_nothing_that_takes_long_to_import(program: str) -> None:
    ended = python(
        f"import atexit, sys; sys.argv = ['{program}', '--help']\natexit.register(lambda:"
        " print(*sorted(name for name in sys.modules if '.' not in name), file=sys.stderr))\nfrom"
        " backfill.__main__ import main; main()"
    )
    assert "Usage" in ended.stdout
    assert SLOW.isdisjoint(ended.stderr.split())


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        ("plan any.yaml", "typer", "backfill-operator[cli]"),
        ("plan any.yaml", "pyarrow", "backfill-operator[local]"),
        ("init --application any --window any", "pyiceberg", "backfill-operator[local]"),
    ],
)
def test_what_is_not_installed_is_named_with_what_to_install(
    command: str, missing: str, extra: str
) -> None:
    arguments = ["backfill", *command.split()]
    ended = python(
        f"import sys; sys.modules['{missing}'] = None; sys.argv = {arguments}\n"
        "from backfill.__main__ import main; main()"
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: {missing} is not installed")
    assert f"pip install '{extra}'" in ended.stderr
