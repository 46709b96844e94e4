"""What this project was before: its definitions, and the operator that came with them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from resources import OWN
from rest import Manifest

from repository import ROOT
from waiting import PATIENCE_SECONDS


def previous_commit() -> str:
    """The last one whose definitions are not today's; skips where there is no such history (an
    archive, a first commit).
    """
    today = [yaml.safe_load(path.read_text()) for path in OWN]
    for commit in ("HEAD", *_before_definitions_changed()):
        found = definitions_at(commit)
        if found and found != today:
            return commit
    pytest.skip("no earlier definitions in the history")


def definitions_at(commit: str) -> list[Manifest]:
    """The definitions of a commit; none where it lacks one of today's."""
    texts = [_git("show", f"{commit}:crds/{path.name}") for path in OWN]
    return [yaml.safe_load(text) for text in texts] if all(texts) else []


def operator_at(commit: str, folder: Path) -> Path:
    """The code of a commit's operator, where Python finds it."""
    folder.mkdir()
    archive = folder / "operator.tar"
    _git("archive", f"--output={archive}", commit, "operator")
    subprocess.run(
        ["tar", "-xf", str(archive), "-C", str(folder)], check=True, timeout=PATIENCE_SECONDS
    )
    return folder / "operator"


def _before_definitions_changed() -> Iterator[str]:
    for commit in _git("log", "--max-count=20", "--format=%H", "--", "crds").split():
        yield f"{commit}^"


def _git(*arguments: str) -> str:
    """What git prints; nothing where there is no git, no history, or not that in it."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""
