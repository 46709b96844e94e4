"""Whoever starts at the README gets to every page, and no link leads nowhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from repository import ROOT

README = ROOT / "README.md"
PAGES = [
    *sorted(ROOT.glob("[A-Z]*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "tests" / "README.md",
]


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Files that a page refers to, and the heading in them; none for the whole file."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in target:
            path, _, heading = target.partition("#")
            yield ((page.parent / path).resolve() if path else page), heading


def headings(page: Path) -> set[str]:
    """How a link names the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_what_is_there(page: Path) -> None:
    for target, heading in links(page):
        assert target.exists(), f"{target} is not there"
        assert not heading or heading in headings(target), f"{target} has no heading {heading}"


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    pages = [README]
    while pages:
        reached.add(page := pages.pop())
        pages += [
            target for target, _ in links(page) if target.suffix == ".md" and target not in reached
        ]
    assert [page.name for page in PAGES if page not in reached] == []


def test_the_files_of_the_architecture_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`([a-z_]+/[\w/.]*)`", text)
    assert len(named) > 50
    places = (ROOT, ROOT / "operator" / "backfill")
    assert [each for each in named if not any((place / each).exists() for place in places)] == []
