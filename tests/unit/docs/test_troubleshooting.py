"""The troubleshooting guide and the tutorial on a cluster quote what the program says."""

import ast
import re
from collections.abc import Iterator

import pytest

from backfill.api.conditions import Reason
from repository import ROOT

GUIDE = (ROOT / "docs" / "troubleshooting.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial-cluster.md").read_text()
REASONS = {reason.value for reason in Reason}


def quotations() -> Iterator[str]:
    """What stands in the first column of tables of what something says; Helm's own words and
    commands are left out.
    """
    sections = [
        section for section in GUIDE.split("\n## ") if not section.startswith(("Helm", "#"))
    ]
    for table in re.findall(
        r"^\| [^|\n]*it says \|.*\n\|---.*\n((?:\|.*\n)+)", "\n".join(sections), re.MULTILINE
    ):
        for row in table.splitlines():
            yield from re.findall(r"`([^`]+)`", row.split("|")[1])


@pytest.fixture(scope="module")
def said() -> str:
    """Every text in the program, those with gaps as one."""
    texts: list[str] = []
    for path in (ROOT / "operator").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


@pytest.mark.parametrize("quotation", sorted(set(quotations()) - REASONS - {"backfill"}))
def test_the_program_says_what_the_guide_quotes(quotation: str, said: str) -> None:
    assert quotation in said


def test_there_are_quotations() -> None:
    assert len(set(quotations())) > 30


@pytest.mark.parametrize(
    "quoted",
    [
        r"InvalidInput: \S+: (there is no SparkApplication)",
        r"Planning (.+?\.) ",
        r"InProgress: (.+?) →",
        r"→ (.+)",
    ],
)
def test_the_program_says_what_the_tutorial_shows(quoted: str, said: str) -> None:
    [screen] = re.findall(r"```\n([^`]*→[^`]*)```", TUTORIAL)
    shown = re.search(quoted, " ".join(screen.split()))
    assert shown is not None and shown[1] in said
