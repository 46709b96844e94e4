"""Whoever looks for something finds it on one of a few pages, which can be read in a day."""

import re
from pathlib import Path

import pytest

from repository import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "architecture.md"}),
    ROOT / "docs" / "reference" / "README.md",
]
"""The pages for users that people write; docs/architecture.md is for contributors."""


def test_there_are_few_pages_and_words() -> None:
    assert len(PAGES) == 14
    assert sum(len(page.read_text().split()) for page in PAGES) <= 40_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_something(page: Path) -> None:
    assert re.search(r"^```", page.read_text(), re.MULTILINE)
