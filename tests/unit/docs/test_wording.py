"""What users read is in plain English, as CONTRIBUTING.md asks for: descriptions of the
definitions, help of the commands, messages of the program, the chart and the documentation.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from backfill.cli.command_lines import CLUSTER, THIS_MACHINE, application
from backfill.controller.manager.options import parser
from backfill.crd.definitions import (
    backfill_definition,
    decision_definition,
    job_report_definition,
    split_assignment_definition,
)
from cases import cases

_ROOT = Path(__file__).parents[3]
_CHART = _ROOT / "charts" / "backfill-operator"
_RIDDLES = re.compile(
    r"\b(can not|tells?|told|mend(s|ed|ing)?|lets? go of|as long as it takes|stands(?! for)|in a"
    r" word|heard of|speaks?"
    r"|looks? after|go(es)? on|turns a second)\b",
    re.IGNORECASE,
)


def described(part: Any) -> Iterator[str]:
    """The texts of a definition."""
    if isinstance(part, dict):
        yield from (
            part[key] for key in ("description", "message") if isinstance(part.get(key), str)
        )
    for inner in (
        part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    ):
        yield from described(inner)


def helped(command: Any) -> Iterator[str]:
    """The texts of a command, its options and its subcommands."""
    yield from (
        text
        for text in (command.help, *(getattr(each, "help", None) for each in command.params))
        if text
    )
    for each in getattr(command, "commands", {}).values():
        yield from helped(each)


def messages() -> Iterator[str]:
    """The strings of the program but for docstrings, with the file of each."""
    for path in sorted((_ROOT / "operator" / "backfill").rglob("*.py")):
        tree = ast.parse(path.read_text())
        documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        yield from (
            f"{path.name}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            if isinstance(node.value, str) and id(node) not in documented
        )


def lines(*paths: Path) -> Iterator[str]:
    """The lines of files, with the name of each; of documentation, what is not code."""
    for path in sorted(paths):
        text = path.read_text()
        if path.suffix == ".md":
            text = re.sub(r"`[^`]+`", "", re.sub(r"(?ms)^ *```.*?^ *```$", "", text))
        yield from (f"{path.name}: {line}" for line in text.splitlines())


@cases(
    "texts",
    {
        "Backfill": list(described(backfill_definition())),
        "SplitAssignment": list(described(split_assignment_definition())),
        "BackfillDecision": list(described(decision_definition())),
        "JobReport": list(described(job_report_definition())),
        "kubectl backfill": list(helped(get_command(application(CLUSTER)))),
        "backfill": list(helped(get_command(application(THIS_MACHINE)))),
        "backfill-operator": [parser({}).format_help()],
        "messages": list(messages()),
        "chart": list(lines(*(path for path in _CHART.rglob("*") if path.is_file()))),
        "documentation": list(lines(_ROOT / "README.md", *(_ROOT / "docs").glob("*.md"))),
    },
)
def test_no_text_has_to_be_deciphered(texts: list[str]) -> None:
    assert len("".join(texts)) > 500
    assert [text for text in texts if _RIDDLES.search(text)] == []
