"""Finds a Java that Spark can run on."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from backfill.api.errors import Problem

LEAST_VERSION = 17
_INSTALLED = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines", "/opt/homebrew/opt")
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java(environment: Mapping[str, str]) -> Path | Problem:
    """The home of a Java of at least version 17: that of JAVA_HOME,
    the one on the PATH, or one at a usual place.
    """
    seen = []
    for home in _homes(environment):
        version = java_version(home)
        if version >= LEAST_VERSION:
            return home
        if version:
            seen.append(f"{home} is Java {version}")
    found = f" ({', '.join(seen)})" if seen else ""
    fix = "install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to it"
    return Problem("", f"Spark needs Java {LEAST_VERSION} or newer, but none was found{found}", fix)


@cache
def java_version(home: Path) -> int:
    """The major version of a Java; 0 if it does not run."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(answer.stderr)
    return int(match[1]) if match and answer.returncode == 0 else 0


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path).resolve().parents[1]
    for directory in map(Path, _INSTALLED):
        for home in sorted(directory.glob("*"), reverse=True):
            yield home / "Contents" / "Home" if (home / "Contents").is_dir() else home
