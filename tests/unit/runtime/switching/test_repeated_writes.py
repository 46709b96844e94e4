"""A function that repeats what has failed writes nothing twice where Delta Lake would not."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from backfill.runtime.switching.batch_function import RedirectedBatch, WriteTarget
from backfill.runtime.switching.batch_writers import _Write, _WriteTo

FRAME: Any = SimpleNamespace(sparkSession=SimpleNamespace(_jsparkSession=None))


class Function:
    """One that writes tables, of which one may fail."""

    query = called = "save"

    def __init__(self) -> None:
        self.run = SimpleNamespace(over=SimpleNamespace(is_set=lambda: False))
        self.gate = SimpleNamespace(announced=lambda _spark, _step: nullcontext())
        self.failing: set[str] = set()
        self.written: list[str] = []

    def branch(self, destination: WriteTarget) -> Any:
        output = SimpleNamespace(name=destination.place)
        return SimpleNamespace(output=output, write=lambda *_: self._write(destination.place))

    def compare(self, *_: object) -> None:
        """What it decodes is no matter here."""

    def _write(self, place: str) -> list[str]:
        if place in self.failing:
            raise ConnectionResetError("once")
        self.written.append(place)
        return ["rows"]


@pytest.fixture
def function() -> Function:
    return Function()


def batch_of(function: Any) -> RedirectedBatch:
    return RedirectedBatch(function, FRAME, 0)


def save(batch: RedirectedBatch, table: str, version: object, application: str = "app") -> None:
    writer = _Write(FRAME, batch).format("delta").mode("append")
    writer.option("txnAppId", application).option("txnVersion", version).save(table)


def append(batch: RedirectedBatch, table: str, version: object, application: str = "app") -> None:
    writer = _WriteTo(FRAME, table, batch).using("delta")
    writer.option("txnVersion", str(version)).option("txnAppId", application).append()


def append_with_options(batch: RedirectedBatch, table: str, version: object) -> None:
    writer = _WriteTo(FRAME, table, batch).using("delta")
    writer.options({"txnVersion": str(version), "txnAppId": "app"}).append()


@pytest.mark.parametrize("write", [save, append, append_with_options])
def test_a_write_that_is_repeated_because_another_one_failed_is_left_out(
    function: Function, write: Any
) -> None:
    batch = batch_of(function)
    function.failing = {"second"}
    with pytest.raises(ConnectionResetError):
        for table in ("first", "second"):
            write(batch, table, 7)
    function.failing = set()
    for table in ("first", "second"):
        write(batch, table, 7)
    assert function.written == ["first", "second"]
    files, _ = batch.close(0.0)
    assert {output: len(rows) for output, rows in files.items()} == {"first": 1, "second": 1}


def test_a_later_version_another_application_and_another_batch_are_written(
    function: Function,
) -> None:
    batch = batch_of(function)
    save(batch, "first", 7)
    save(batch, "first", 8)
    save(batch, "first", 7)
    save(batch, "first", "7", application="other")
    save(batch_of(function), "first", 7)
    assert len(function.written) == 4


def test_writes_without_a_transaction_are_all_made(function: Function) -> None:
    batch = batch_of(function)
    for _ in range(2):
        _Write(FRAME, batch).mode("append").option("txnAppId", "app").save("first")
        _WriteTo(FRAME, "first", batch).append()
        save(batch, "first", "no number")
    assert len(function.written) == 6


def test_formats_that_know_no_transactions_write_all(function: Function) -> None:
    batch = batch_of(function)
    for _ in range(2):
        writer = _Write(FRAME, batch).format("parquet").mode("append")
        writer.option("txnAppId", "app").option("txnVersion", 7).save("table")
        newer = _WriteTo(FRAME, "table", batch).using("iceberg")
        newer.option("txnAppId", "app").option("txnVersion", "7").append()
    assert function.written == ["table"] * 4
