"""Files of the state directory that a full disk or a crash has left damaged."""

import errno
import os
from pathlib import Path

import pytest

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError
from backfill.api.pods import Overrides
from backfill.api.spark_application import Application
from backfill.controller.local.store import LocalStore
from backfill.controller.local_driver.backend import LocalBackend
from backfill.protocol.atomic_files import replace_file
from backfill.protocol.model_files import read_model


@pytest.mark.parametrize("content", [b"", b'{"spec": {', b"\xff\x00", b"[]"])
def test_the_damaged_file_is_named_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    store = LocalStore(tmp_path, "default", "january")
    store.directory.mkdir(parents=True)
    for name in ("backfill.json", "application.json"):
        (store.directory / name).write_bytes(content)
    with pytest.raises(BackfillError, match=r"backfill\.json is damaged, .*; restore it"):
        store.load()
    with pytest.raises(BackfillError, match=r"application\.json is damaged, .*; restore it"):
        store.application()
    with pytest.raises(BackfillError, match=r"application\.json is damaged"):
        read_model(store.directory / "application.json", Backfill)


@pytest.mark.parametrize("content", [b"", b'{"pid"', b"[]", b'{"pid": 1}'])
def test_a_driver_whose_process_is_unknown_is_not_a_stack_trace(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "attempts" / "1").mkdir(parents=True)
    (tmp_path / "attempts" / "1" / "driver.json").write_bytes(content)
    application = Application.model_validate({"name": "app", "mainApplicationFile": "app.py"})
    backend = LocalBackend(
        tmp_path / "attempts",
        tmp_path / "channel",
        application=application,
        overrides=Overrides(),
    )
    with pytest.raises(BackfillError, match=r"attempts/1/driver\.json is damaged"):
        backend.observe(1)


def test_a_full_disk_is_told_with_the_file_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/backfill\.json'"):
        replace_file(tmp_path / "backfill.json", b"{}")
    assert not list(tmp_path.iterdir())
