"""What `.ci/images` does if an image cannot be built, with a fake of what builds them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from repository import ROOT
from waiting import PATIENCE_SECONDS

_BUILD = """#!/bin/sh
echo "$1"
echo "$@" >>"$0.calls"
[ "$1" != "$FAIL" ]
"""
_IMAGES = ["backfill-operator", "backfill-jobs", "backfill-spark", "backfill-stores"]


def build(project: Path, failing: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
    """Builds the images in a fake of a clone."""
    programs = {
        project / ".ci" / "images": (ROOT / ".ci" / "images").read_text(),
        project / "scripts" / "object-store.sh": "#!/bin/sh\necho context\n",
        project / "cluster" / "image": _BUILD,
    }
    for program, text in programs.items():
        program.parent.mkdir(parents=True)
        program.write_text(text)
        program.chmod(0o755)
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.run(
        [bash, project / ".ci" / "images", project / "cluster"],
        env={"PATH": os.environ["PATH"], "FAIL": failing, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def test_every_image_is_built_after_the_one_that_makes_their_base(tmp_path: Path) -> None:
    done = build(tmp_path)
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.splitlines()
    assert (first, sorted(others)) == (_IMAGES[0], _IMAGES[1:])


@pytest.mark.parametrize(("spark", "argument"), [("", ""), ("3.5", "SPARK_VERSION=3.5")])
def test_the_image_of_spark_is_one_of_the_version_asked_for(
    tmp_path: Path, spark: str, argument: str
) -> None:
    done = build(tmp_path, SPARK=spark)
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "cluster" / "image.calls").read_text()
    given = {name: rest for name, _, rest in (line.partition(" ") for line in calls.splitlines())}
    assert re.findall(r"SPARK_VERSION=\S*", given["backfill-spark"]) == argument.split()
    assert "SPARK_VERSION" not in given["backfill-operator"] + given["backfill-stores"]


@pytest.mark.parametrize("image", _IMAGES)
def test_it_fails_if_an_image_cannot_be_built(tmp_path: Path, image: str) -> None:
    assert build(tmp_path, image).returncode != 0
