"""The clients of other systems that a function of ``foreachBatch`` refers to, however it does."""

import http.client
import importlib
import smtplib
import subprocess as processes
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from socket import create_connection
from typing import Any

import pytest

from backfill.runtime.surveying.mentioned_clients import clients

SERVER = smtplib.SMTP  # a class
CONNECTION = http.client.HTTPConnection("nowhere")  # an object of one; nothing connects


def post(row: Any) -> None:
    urllib.request.urlopen(f"http://{row}")


def by_a_helper(batch: Any, number: int) -> None:
    for row in batch.collect():
        post(row)


def by_an_import_within(batch: Any, number: int) -> None:
    import sqlite3

    sqlite3.connect(":memory:")


def by_a_function_of_the_module(batch: Any, number: int) -> None:
    batch.foreach(lambda row: create_connection((row, 1)))


def by_another_name(batch: Any, number: int) -> None:
    processes.run(["true"], check=True)


def by_a_class(batch: Any, number: int) -> None:
    SERVER("nowhere")


def by_an_object(batch: Any, number: int) -> None:
    CONNECTION.request("GET", "/")


def made() -> Callable[..., None]:
    connection = CONNECTION

    def by_a_variable_around_it(batch: Any, number: int) -> None:
        connection.request("GET", "/")

    return by_a_variable_around_it


class Writer:
    def __call__(self, batch: Any, number: int) -> None:
        self.send(batch)

    def send(self, batch: Any) -> None:
        post(batch)


class Database:
    def save(self, rows: Any) -> None:
        def one(row: Any) -> None:
            post(row)

        for row in rows:
            one(row)

    @staticmethod
    def ping() -> None:
        processes.run(["ping"], check=True)


DATABASE = Database()


def by_an_object_of_its_own(batch: Any, number: int) -> None:
    DATABASE.save(batch.collect())


def by_another_module(batch: Any, number: int) -> None:
    import module_with_a_client  # type: ignore[import-not-found]

    module_with_a_client.send(batch)


def of_rows_only(batch: Any, number: int) -> None:
    batch.writeTo("lake.raw.clicks").append()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (by_a_helper, ("urllib.request",)),
        (by_an_import_within, ("sqlite3",)),
        (by_a_function_of_the_module, ("socket",)),
        (by_another_name, ("subprocess",)),
        (by_a_class, ("smtplib",)),
        (by_an_object, ("http.client",)),
        (made(), ("http.client",)),
        (Writer(), ("urllib.request",)),
        (Writer().send, ("urllib.request",)),
        (lambda batch, number: post(batch), ("urllib.request",)),
        (by_an_object_of_its_own, ("subprocess", "urllib.request")),
        (of_rows_only, ()),
    ],
)
def test_a_client_is_found(function: Any, expected: tuple[str, ...]) -> None:
    assert clients(function) == expected


def test_a_part_of_a_package_is_none_of_its_other_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def parses(batch: Any, number: int) -> None:
        import google.protobuf  # type: ignore[import-untyped]  # noqa: F401

    def stores(batch: Any, number: int) -> None:
        import google.cloud.storage  # type: ignore[import-not-found]  # noqa: F401

    assert clients(parses) == ()
    assert clients(stores) == ("google.cloud",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import socket\n", ("socket",)),
        ("from smtplib import SMTP\n", ("smtplib",)),
        ("import http.client\n", ("http.client",)),
        ("import json\n", ()),
    ],
)
def test_all_that_another_module_of_the_program_refers_to_counts(
    text: str, expected: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_with_a_client.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "module_with_a_client", raising=False)
    importlib.import_module("module_with_a_client")
    assert clients(by_another_module) == expected
