"""What a tag must find before anything is built of it, and what the plugin's manifest says."""

import hashlib
import importlib.util
import re
import shutil
from pathlib import Path

import pytest
import yaml

from backfill import __version__
from repository import ROOT

_spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
assert _spec is not None
assert _spec.loader is not None
release = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(release)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files that name a version, with a changelog that is ready."""
    for name in (
        "charts/backfill-operator/Chart.yaml",
        "operator/backfill/__init__.py",
        "CHANGELOG.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(
        changelog.read_text().replace("## Unreleased", f"## {__version__} - 2026-12-01")
    )
    return tmp_path


def test_package_and_chart_agree_already() -> None:
    assert [
        problem
        for problem in release.problems(f"v{__version__}")
        if not problem.startswith("CHANGELOG")
    ] == []


def test_a_tag_that_everything_agrees_with_is_released_with_its_notes(project: Path) -> None:
    assert release.problems(f"v{__version__}", project) == []
    assert release.notes(f"v{__version__}", project).startswith("### Added")


def test_a_version_that_was_not_set_everywhere_is_not_released(project: Path) -> None:
    places = [
        "__init__.py: __version__",
        "Chart.yaml: version",
        "Chart.yaml: appVersion",
        "CHANGELOG.md",
    ]
    problems = release.problems("v99.0.0", project)
    assert len(problems) == len(places)
    assert all(place in problem for place, problem in zip(places, problems, strict=True))
    assert release.problems("release-1", project) == [
        "release-1: no version; name the tag like v1.2.3"
    ]


def test_notes_end_where_the_next_version_begins(project: Path) -> None:
    (project / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 1.1.0 - 2027\n\nnew\n\n### Fixed\n\n- a\n\n## 1.0.0\n\nold\n"
    )
    assert release.notes("v1.1.0", project) == "new\n\n### Fixed\n\n- a"
    assert release.notes("v1.0.0", project) == "old"
    assert release.notes("v1.1", project) == ""


def test_the_plugins_manifest_names_each_archive_with_its_digest(tmp_path: Path) -> None:
    archives = [
        tmp_path / f"backfill-{platform}.tar.gz" for platform in ("linux-arm64", "darwin-arm64")
    ]
    for archive in archives:
        archive.write_bytes(archive.name.encode())
    manifest = yaml.safe_load(release.plugin("v1.2.3", "https://example.com/v1.2.3/", archives))
    assert re.fullmatch(r"[a-z][a-z-]*", manifest["metadata"]["name"])
    found = {platform["uri"]: platform["sha256"] for platform in manifest["spec"]["platforms"]}
    assert found == {
        f"https://example.com/v1.2.3/{archive.name}": (
            hashlib.sha256(archive.read_bytes()).hexdigest()
        )
        for archive in archives
    }
    with pytest.raises(SystemExit, match="call it backfill-OS-ARCH"):
        release.plugin("v1.2.3", "https://example.com", [tmp_path / "plugin.zip"])
