"""The commands that documents and samples tell people to use."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from backfill.cli.command_lines import CLUSTER, application
from repository import ROOT

DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.yaml")),
]
_COMMAND = re.compile(r"kubectl backfill ([a-z]+)\b")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_on_a_cluster_is_one(document: Path) -> None:
    known = get_command(application(CLUSTER)).commands  # type: ignore[attr-defined]
    assert set(_COMMAND.findall(document.read_text())) <= set(known)


def test_the_tutorial_on_a_cluster_shows_all_of_them() -> None:
    shown = set(_COMMAND.findall((ROOT / "docs" / "tutorial-cluster.md").read_text())) | {"resume"}
    assert shown >= set(get_command(application(CLUSTER)).commands) - {"version"}  # type: ignore[attr-defined]
