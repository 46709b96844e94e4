"""Two files in a directory, and the lock that says whether anybody is at the other end."""

import fcntl
from pathlib import Path

from backfill.api.quantities import from_us
from backfill.protocol.atomic_files import replace_file
from backfill.protocol.split_assignment import (
    ASSIGNMENT_FILE,
    LOCK_FILE,
    STATUS_FILE,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
)
from backfill.runtime.agent.channel import DirectoryChannel


def _assign(directory: Path, released: int) -> None:
    spec = SplitAssignmentSpec(
        backfill="b", plan_id="p", attempt=1, steps=9, released=released, watermark=from_us(0)
    )
    replace_file(
        directory / ASSIGNMENT_FILE, spec.model_dump_json(by_alias=True).encode(), durable=False
    )


def test_the_driver_sees_each_assignment_that_replaces_the_last(tmp_path: Path) -> None:
    channel = DirectoryChannel(tmp_path)
    assert channel.assignment() is None
    for released in (1, 2, 3):
        _assign(tmp_path, released)
        spec = channel.assignment()
        assert spec is not None
        assert spec.released == released


def test_an_assignment_that_is_not_valid_leaves_the_last_one_standing(tmp_path: Path) -> None:
    channel = DirectoryChannel(tmp_path)
    _assign(tmp_path, 4)
    channel.assignment()
    replace_file(tmp_path / ASSIGNMENT_FILE, b'{"released": 5}')
    spec = channel.assignment()
    assert spec is not None
    assert spec.released == 4
    _assign(tmp_path, 6)
    assert channel.assignment() != spec


def test_a_new_driver_reads_what_the_last_one_reported(tmp_path: Path) -> None:
    status = SplitAssignmentStatus(attempt=3, phase="Running", heartbeat=from_us(1))
    assert DirectoryChannel(tmp_path).last_status() is None
    DirectoryChannel(tmp_path).report(status)
    assert DirectoryChannel(tmp_path).last_status() == status
    (tmp_path / STATUS_FILE).write_text("{}")
    assert DirectoryChannel(tmp_path).last_status() is None


def test_a_controller_is_alive_as_long_as_it_holds_its_lock(tmp_path: Path) -> None:
    channel = DirectoryChannel(tmp_path)
    assert not channel.controller_alive()
    with (tmp_path / LOCK_FILE).open("wb") as lock:
        assert not channel.controller_alive()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert channel.controller_alive()
    assert not channel.controller_alive()
