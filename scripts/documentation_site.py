"""Builds the documentation as a site, in .site/html: ``make site``. Fails if a link is broken.

The pages are spread over the repository, and a site generator wants them below one folder of their
own. So they are copied to .site/pages first, with their paths, and with the files they link to.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / ".site"
PAGES = [
    *ROOT.glob("[A-Z]*.md"),
    *(ROOT / "docs").rglob("*.md"),
    ROOT / "charts" / "backfill-operator" / "README.md",
    ROOT / "tests" / "README.md",
]


def linked(page: Path) -> list[Path]:
    """The pictures and other files that a page refers to."""
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    files = [page.parent / target for target in targets if "://" not in target]
    return [file.resolve() for file in files if file.is_file() and file.suffix != ".md"]


def main() -> int:
    """Copies the pages and runs the generator, whose exit status it returns."""
    shutil.rmtree(SITE, ignore_errors=True)
    for file in {*PAGES, *(file for page in PAGES for file in linked(page))}:
        copy = SITE / "pages" / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return subprocess.run(
        [sys.executable, "-m", "properdocs", "build"], cwd=ROOT, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
