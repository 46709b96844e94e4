"""Fake programs that note how they are called. They run nothing, and make the files that their
callers go on with.
"""

import os
import shutil
import subprocess
from pathlib import Path

from waiting import PATIENCE_SECONDS

ENGINE = '[ "$1" != save ] || : >"$3"'
"""What a fake docker or podman does."""
_FAKES = {
    "kind": (
        """case $1 in create) grep -q '"extraMounts"' "$6" && echo "current-context: kind-$4" >"$8";; esac"""
    ),
    "docker": ENGINE,
    "helm": "",
    "kubectl": "",
    "go": 'mkdir -p "$GOBIN" && : >"$GOBIN/versitygw" && chmod +x "$GOBIN/versitygw"',
}
_OF_EVERY_MACHINE = ("sh", "sed", "grep", "dirname", "mkdir", "chmod", "nice", "cut", "sha256sum")


class FakePrograms:
    """A machine with these programs and no others."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._calls = directory / "calls"
        self._bin = directory / "bin"
        self._bin.mkdir()
        for name in _OF_EVERY_MACHINE:
            (self._bin / name).symlink_to(str(shutil.which(name)))
        for name, does in _FAKES.items():
            self.behave(name, does)

    def behave(self, name: str, does: str) -> None:
        """What a program does after it has noted its call."""
        program = self._bin / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self._calls}"\n{does}\n')
        program.chmod(0o755)

    def remove(self, name: str) -> None:
        """Takes a program away."""
        (self._bin / name).unlink()

    def run(self, *command: "str | Path", **variables: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command on this machine."""
        environment = {
            "PATH": str(self._bin),
            "HOME": str(self._directory),
            "TMPDIR": str(self._directory),
        } | variables
        words = [os.fspath(word) for word in command]
        return subprocess.run(
            words,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    @property
    def calls(self) -> list[str]:
        """The calls so far, in order."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []
