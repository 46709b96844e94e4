"""What `.ci/run` says of its parts, some of which run beside others; with fakes of all of them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from repository import ROOT
from waiting import PATIENCE_SECONDS

_PART = """#!/bin/sh
name=${0##*/}
[ "$name" != make ] || name=$1
case $2 in SPARK=*) name="$name ${2#SPARK=}" ;; esac
echo "$name begins"
nice >"$HOME/$name.niceness"
echo "$name ends"
[ "$name" != cluster ] || echo "it is given $2"
[ "$name" != "$FAIL" ] || exit 1
"""
"""A part that fails if it is one of ``$FAIL``."""
_CHECKS = ["lint", "lint-workflows", "verify"]
_BESIDE = ["images", "build"]
_INSTALLED = ["install 3.5", "install 4.1"]
_TESTS = ["test", "install 3.5", "test 3.5", "install 4.1", "test 4.1"]
_PARTS = [*_CHECKS, "kafka.sh", *_TESTS, *_BESIDE, "test-chart", "test-apiserver", "start-cluster"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A clone beside the scripts of a cluster."""
    project = tmp_path / "project"
    programs = [tmp_path / "bin" / name for name in ("make", "buildah", "debootstrap")]
    programs += [
        tmp_path / "shared" / "cluster" / name for name in ("build", "image", "up", "down")
    ]
    programs += [project / ".ci" / name for name in ("images", "start-cluster", "cluster")]
    programs += [project / "scripts" / "kafka.sh"]
    for program in programs:
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n" if program.name in ("image", "up") else _PART)
        program.chmod(0o755)
    shutil.copy(ROOT / ".ci" / "run", project / ".ci")
    return project


def run(project: Path, failing: str = "") -> "subprocess.CompletedProcess[str]":
    path = f"{project.parent / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        [project / ".ci" / "run"],
        env={"PATH": path, "HOME": str(project), "FAIL": failing},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def whole(*parts: str) -> list[str]:
    return [f"{part} {does}" for part in parts for does in ("begins", "ends")]


def test_every_part_runs_and_its_output_is_whole(project: Path) -> None:
    done = run(project)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("===")]
    given = "it is given start-cluster ends"
    assert lines == [*whole(*_PARTS, "cluster"), given, *whole("down")]


@pytest.mark.parametrize("part", [*_PARTS, "cluster"])
def test_it_fails_where_a_part_fails(project: Path, part: str) -> None:
    done = run(project, part)
    assert done.returncode == 1
    assert whole(part)[1] in done.stdout
    begun = part in ("test-chart", "test-apiserver", "start-cluster", "cluster")
    assert ("down ends" in done.stdout) == begun, "no cluster is left"


def test_what_runs_beside_tests_takes_nothing_from_them(project: Path) -> None:
    assert run(project).returncode == 0
    niceness = {part: int((project / f"{part}.niceness").read_text()) for part in _PARTS}
    beside = [*_BESIDE, "kafka.sh", *_INSTALLED, "start-cluster"]
    assert {niceness.pop(part) for part in beside} == {19}
    assert set(niceness.values()) == {os.nice(0)}


def test_a_part_that_fails_ends_what_runs_beside_it(project: Path) -> None:
    (project / ".ci" / "images").write_text("#!/bin/sh\nsleep 3600 & wait\n")
    assert run(project, "lint").returncode == 1, "it does not wait for the images"
