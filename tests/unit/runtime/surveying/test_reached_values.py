"""What a function of ``foreachBatch`` refers to, wherever it takes it from: here, names of tables."""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from backfill.runtime.surveying.reached_values import reached

TABLE = "lake.sales.plays"
OF_THE_MODULE = TABLE
BY_KIND = {"plays": [TABLE]}
SETTINGS = SimpleNamespace(table=TABLE)


def mentioned(function: Any) -> list[str]:
    """The words in all texts."""
    texts = [each for each in reached(function) if issubclass(type(each), str)]
    return [word.strip("`'\"(),;") for each in texts for word in str.split(each)]


def written(batch: Any) -> None:
    batch.writeTo("lake.sales.plays").append()


def append(batch: Any, number: int, table: str) -> None:
    batch.writeTo(table).append()


def main() -> Callable[..., None]:
    table = "lake.sales.plays"

    def write(batch: Any, number: int) -> None:
        batch.writeTo(table).append()

    return write


def main_with_a_list() -> Callable[..., None]:
    tables = ["lake.sales.plays", "lake.sales.skips"]

    def write(batch: Any, number: int) -> None:
        for table in tables:
            batch.writeTo(table).append()

    return write


def decorated(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def logging_it(batch: Any, number: int) -> None:
        function(batch, number)

    return logging_it


def with_a_default(batch: Any, number: int, table: str = "lake.sales.plays") -> None:
    batch.writeTo(table).append()


def with_a_keyword(batch: Any, number: int, *, table: str = "lake.sales.plays") -> None:
    batch.writeTo(table).append()


def of_the_module(batch: Any, number: int) -> None:
    batch.writeTo(OF_THE_MODULE).append()


def by_kind(batch: Any, number: int) -> None:
    for table in BY_KIND["plays"]:
        batch.writeTo(table).append()


def by_settings(batch: Any, number: int) -> None:
    batch.writeTo(SETTINGS.table).append()


def by_another_function(batch: Any, number: int) -> None:
    written(batch)


def within(batch: Any, number: int) -> None:
    def merge() -> None:
        batch.sparkSession.sql("MERGE INTO `lake.sales.plays` USING (SELECT 1)")

    merge()


@dataclass
class Writer:
    table: str

    def __call__(self, batch: Any, number: int) -> None:
        self.write(batch, number)

    def write(self, batch: Any, number: int) -> None:
        batch.writeTo(self.table).append()


class WithConstants:
    table = "lake.sales.plays"

    def __call__(self, batch: Any, number: int) -> None:
        batch.writeTo(self.table).append()


class Base:
    kept_in = "lake.sales.plays"

    def __call__(self, batch: Any, number: int) -> None:
        self.write(batch)

    def write(self, batch: Any) -> None:
        batch.writeTo("lake.sales.skips").append()


class WithBase(Base):
    pass


class Further(WithBase):
    def write(self, batch: Any) -> None:
        batch.writeTo(self.kept_in).append()


class Retried:
    """A decorator that is a class."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __call__(self, batch: Any, number: int) -> None:
        self.function(batch)

    def run(self, batch: Any, number: int) -> None:
        self(batch, number)


class WithTexts:
    def __call__(self, batch: Any, number: int) -> None:
        self._write(batch)

    def _write(self, batch: Any) -> None:
        batch.writeTo("lake.sales.plays").append()


@pytest.mark.parametrize(
    "function",
    [
        main(),
        main_with_a_list(),
        decorated(main()),
        with_a_default,
        with_a_keyword,
        of_the_module,
        by_kind,
        by_settings,
        by_another_function,
        within,
        functools.partial(append, table=TABLE),
        functools.partial(functools.partial(append), 0, 1, TABLE),
        functools.partial(Writer(TABLE).write),
        functools.partial(Writer(TABLE)),
        Writer(TABLE),
        Writer(TABLE).write,
        WithConstants(),
        WithTexts(),
        WithBase(),
        WithBase().write,
        Further(),
        Retried(written),
        Retried(Writer(TABLE).write).run,
        functools.lru_cache(written),
        lambda batch, number: append(batch, number, "lake.sales.plays"),
    ],
)
def test_its_name_is_found(function: Callable[..., None]) -> None:
    assert TABLE in set(mentioned(function))


def test_names_are_in_the_order_of_the_code() -> None:
    def write(batch: Any, number: int) -> None:
        batch.writeTo("lake.b").append()
        written(batch)
        batch.writeTo("lake.a").append()

    assert list(mentioned(write)) == ["lake.b", "lake.a", TABLE]


def test_what_only_leads_elsewhere_is_not_followed() -> None:
    nothing: Any = None
    tables = [f"lake.sales.{number}" for number in range(100)]
    elsewhere = SimpleNamespace(log=logging.getLogger(), other=SimpleNamespace(table=TABLE))

    def write(batch: Any, number: int) -> None:
        print(nothing, not_yet, tables, elsewhere.log, logging.getLogger)

    assert set(mentioned(write)) == set()
    not_yet = TABLE


def test_what_refers_to_itself_is_looked_at_once() -> None:
    loop: list[Any] = [TABLE]
    loop.append(loop)

    def write(batch: Any, number: int) -> None:
        write(loop, number)

    assert list(mentioned(write)) == [TABLE]


class Proxy:
    """Stands for an object that exists only while something runs, as those of Flask do."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no object for {name}")

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("no object")

    def __call__(self, batch: Any, number: int) -> None:
        batch.writeTo("lake.sales.plays").append()


class WithoutDictionary:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return None


class Lazy(dict[str, str]):
    def __len__(self) -> int:
        raise ValueError("not loaded yet")


class LazyValues(dict[str, str]):
    def values(self) -> Any:
        raise ValueError("not loaded yet")


@pytest.mark.parametrize(
    "make",
    [lambda: Proxy("a"), WithoutDictionary, Lazy, lambda: LazyValues(a="b")],
    ids=["proxy", "no dictionary", "no length", "no values"],
)
def test_what_cannot_be_looked_at_is_skipped(make: Callable[[], Any]) -> None:
    value = make()  # not a parameter, since pytest could not look at it either
    parts = [value, TABLE]

    def write(batch: Any, number: int) -> None:
        value(batch, parts)

    found = [
        set(mentioned(each)) for each in (write, functools.partial(append, value, table=TABLE))
    ]
    assert all(TABLE in each for each in found)


def test_the_function_itself_may_be_a_proxy() -> None:
    found = set(mentioned(Proxy("lake.sales.skips")))
    assert found == {TABLE, "lake.sales.skips"}


def test_builtins_and_classes_have_no_texts() -> None:
    assert set(mentioned(print)) == set()
    assert set(mentioned(Writer)) == set()
