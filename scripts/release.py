"""What a release needs besides its builds: agreement of versions, its notes, and the manifest of
the kubectl plugin.

python scripts/release.py check v1.2.3                    # tag, package, chart and changelog are of
one version python scripts/release.py notes v1.2.3                    # the changelog's section
python scripts/release.py plugin v1.2.3 --at URL FILE...  # a krew manifest of archives named
backfill-OS-ARCH.tar.gz
"""

import argparse
import hashlib
import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
_ARCHIVE = re.compile(r"backfill-(linux|darwin)-(amd64|arm64)\.tar\.gz")


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """Why a tag cannot be released; empty if it can."""
    version = tag.removeprefix("v")
    if not re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", tag):
        return [f"{tag}: no version; name the tag like v1.2.3"]
    chart = yaml.safe_load((root / "charts/backfill-operator/Chart.yaml").read_text())
    package = re.search(
        r'^__version__ = "(.+)"', (root / "operator/backfill/__init__.py").read_text(), re.MULTILINE
    )
    found = {
        "operator/backfill/__init__.py: __version__": package[1] if package else "",
        "charts/backfill-operator/Chart.yaml: version": str(chart["version"]),
        "charts/backfill-operator/Chart.yaml: appVersion": str(chart["appVersion"]),
    }
    wrong = [
        f"{place} is {value}; set it to {version}"
        for place, value in found.items()
        if value != version
    ]
    if not notes(tag, root):
        wrong.append(f"CHANGELOG.md: there is no section {version}; rename Unreleased")
    return wrong


def notes(tag: str, root: Path = ROOT) -> str:
    """The changelog's section of a version; empty where there is none."""
    version = re.escape(tag.removeprefix("v"))
    section = re.search(
        rf"^## {version}(?=\s).*\n((?:(?!^## ).*\n?)*)",
        (root / "CHANGELOG.md").read_text(),
        re.MULTILINE,
    )
    return section[1].strip() if section else ""


def plugin(tag: str, at: str, archives: list[Path]) -> str:
    """The krew manifest of the plugin's archives, which are to be found below the URL ``at``."""
    platforms = []
    for archive in sorted(archives):
        name = _ARCHIVE.fullmatch(archive.name)
        if name is None:
            raise SystemExit(
                f"{archive}: no archive of the plugin; call it backfill-OS-ARCH.tar.gz"
            )
        platforms.append(
            {
                "selector": {"matchLabels": {"os": name[1], "arch": name[2]}},
                "uri": f"{at.rstrip('/')}/{archive.name}",
                "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                "bin": "kubectl-backfill",
            }
        )
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "backfill"},
        "spec": {
            "version": tag,
            "shortDescription": "Rerun streaming Spark applications on their history",
            "description": (
                "Shows, suspends, resumes, approves and cancels Backfills: streaming Spark"
                " applications that are\nrun again on their history in Iceberg tables. It brings"
                " its own Python.\n"
            ),
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(manifest, sort_keys=False)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("check", "notes", "plugin"):
        commands.add_parser(name).add_argument("tag")
    commands.choices["plugin"].add_argument("--at", required=True)
    commands.choices["plugin"].add_argument("archives", nargs="+", type=Path)
    given = parser.parse_args()
    if given.command == "check":
        sys.exit("\n".join(problems(given.tag)) or 0)
    print(
        notes(given.tag)
        if given.command == "notes"
        else plugin(given.tag, given.at, given.archives)
    )


if __name__ == "__main__":
    main()
