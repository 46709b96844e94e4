"""Processes that this controller need not have started,
such as drivers of an earlier controller.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_FIELDS_AFTER_NAME = {"state": 0, "group": 2, "started": 19}


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process that has not ended."""

    pid: int
    group: int
    started: str
    """Start time in the system's own format. Together with the pid, it identifies the process."""


def process(pid: int) -> ProcessInfo | None:
    """The process with this number; None if there is none, or if it has ended."""
    if (_PROC / "self" / "stat").exists():
        return _from_proc(pid)
    return next((found for found in _from_ps() if found.pid == pid), None)


def group_members(group: int) -> list[ProcessInfo]:
    """Processes of a group that have not ended."""
    if (_PROC / "self" / "stat").exists():
        pids = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
        found = [info for pid in pids if (info := _from_proc(pid)) is not None]
    else:
        found = list(_from_ps())
    return [member for member in found if member.group == group]


def kill_group(group: int) -> None:
    """Kills every process of a group. A group without processes is no error."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _from_proc(pid: int) -> ProcessInfo | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may contain any character
    if fields[_FIELDS_AFTER_NAME["state"]] in "ZX":
        return None
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return ProcessInfo(
        pid,
        int(fields[_FIELDS_AFTER_NAME["group"]]),
        f"{boot} {fields[_FIELDS_AFTER_NAME['started']]}",
    )


def _from_ps() -> Iterator[ProcessInfo]:
    command = ["ps", "-A", "-o", "pid=,pgid=,stat=,lstart="]
    for line in subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.splitlines():
        pid, group, state, started = line.split(maxsplit=3)
        if not state.startswith("Z"):
            yield ProcessInfo(int(pid), int(group), started)
