"""What is reported of a main program that fails before its first query. Needs no Spark."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backfill.runtime.launch import run_application
from backfill.runtime.queries.run_state import Outcome, ProgramRun

MAIN = """
def tables():
    return settings["tables"]

{body}
"""


def _outcome(directory: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Outcome:
    file = directory / "app.py"
    file.write_text(MAIN.format(body=body))
    monkeypatch.setattr("sys.argv", ["runtime"])
    monkeypatch.setattr("sys.path", [str(directory)])
    settings: Any = SimpleNamespace(main_file=str(file), arguments=())
    run = ProgramRun(settings)
    run_application(run)
    assert run.outcome is not None
    return run.outcome


@pytest.mark.parametrize(
    "body",
    [
        "tables()",
        "import sys\ntry:\n    tables()\nexcept Exception:\n    sys.exit(1)",
    ],
)
def test_a_mistake_in_the_program_is_shown_at_once_and_not_tried_four_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    outcome = _outcome(tmp_path, monkeypatch, body)
    assert outcome.reason == "ProgramFailed"
    first, *rest = outcome.message.splitlines()
    assert first == (
        "the application failed before it started a query: NameError: name 'settings' is not"
        " defined"
    )
    assert f'  File "{tmp_path}/app.py", line 3, in tables' in rest
    assert rest[0].endswith("in <module>"), "only calls of the program are shown"


def test_a_java_that_does_not_start_is_not_tried_again_and_says_what_to_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "raise RuntimeError('[JAVA_GATEWAY_EXITED] Java gateway process exited')"
    outcome = _outcome(tmp_path, monkeypatch, body)
    assert outcome.reason == "ProgramFailed"
    assert "check that java runs here, that JAVA_HOME is right" in outcome.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ConnectionError('brokers:9092')", "ConnectionError: brokers:9092"),
        ("raise SystemExit(3)", "the application ended with status 3"),
        ("raise SystemExit('no brokers')", "the application ended with the message: no brokers"),
    ],
)
def test_what_may_pass_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, said: str
) -> None:
    outcome = _outcome(tmp_path, monkeypatch, body)
    assert (outcome.reason, outcome.message) == ("ApplicationFailed", said)
