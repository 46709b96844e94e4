"""Random filters in PyIceberg's syntax, each with what it means, in SQL's logic of three values."""

from collections.abc import Callable
from random import Random
from typing import Any

from random_columns import UUIDS, Column

Meaning = Callable[[dict[str, Any]], bool | None]
"""Whether a row matches; None where that is unknown, because something compared is null."""


def random_filter(rng: Random, columns: tuple[Column, ...], depth: int = 2) -> tuple[str, Meaning]:
    """A filter on some of a table's columns."""
    if depth and rng.random() < 0.5:
        left, is_left = random_filter(rng, columns, depth - 1)
        right, is_right = random_filter(rng, columns, depth - 1)
        word = rng.choice(["and", "or"])
        return f"({left}) {word} ({right})", lambda row: _both(word, is_left(row), is_right(row))
    if depth and rng.random() < 0.3:
        text, means = random_filter(rng, columns, depth - 1)
        return f"not ({text})", lambda row: _not(means(row))
    return _predicate(
        rng,
        rng.choice(
            [
                each
                for each in _leaves(columns)
                if each[1].kind in _LITERALS and '"' not in each[1].name
            ]
        ),
    )


_LITERALS: dict[str, list[tuple[str, Any]]] = {
    "text": [("'eu'", "eu"), ("'it''s'", "it's"), ("''", ""), ("'é'", "é"), ("'zz'", "zz")],
    "whole": [("2", 2), ("-1", -1), ("200", 200)],
    "int": [("1", 1), ("0", 0)],
    "real": [("0.25", 0.25), ("-2.5", -2.5)],
    "uuid": [(f"'{value}'", str(value)) for value in UUIDS[:2]],
    "date": [("'2026-02-17'", 20_501)],
    "seen": [
        ("'2026-03-01T00:00:00+00:00'", 1_772_323_200_000_000),
        ("'1970-01-01T00:00:00+00:00'", 0),
    ],
}
_ORDERED = {"==", "!=", "<", "<=", ">", ">="}


def _leaves(
    columns: tuple[Column, ...], above: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], Column]]:
    found = []
    for column in columns:
        path = (*above, column.name)
        found += _leaves(column.parts, path) if column.kind == "struct" else [(path, column)]
    return found


def _predicate(rng: Random, leaf: tuple[tuple[str, ...], Column]) -> tuple[str, Meaning]:
    path, column = leaf
    # the syntax takes no dots within quotes; a name with dots is the same as a path
    name = ".".join(_quoted(part) for part in ".".join(path).split("."))
    text, value = rng.choice(_LITERALS[column.kind])
    how = rng.choice(["null", "in", "like", "compare", "compare"])
    negated = rng.random() < 0.5
    if how == "null":
        return (
            f"{name} is {'not ' if negated else ''}null",
            lambda row: (_at(row, path) is None) != negated,
        )
    if how == "in" and column.kind != "seen":
        chosen = rng.sample(_LITERALS[column.kind], min(2, len(_LITERALS[column.kind])))
        listed, values = ", ".join(each[0] for each in chosen), {each[1] for each in chosen}
        return (
            f"{name} {'not ' if negated else ''}in ({listed})",
            lambda row: _known(_at(row, path), lambda it: (it in values) != negated),
        )
    if how == "like" and column.kind == "text":
        return (
            f"{name} {'not ' if negated else ''}like 'e%'",
            lambda row: _known(_at(row, path), lambda it: it.startswith("e") != negated),
        )
    operator = rng.choice(["==", "!="] if column.kind == "uuid" else sorted(_ORDERED))
    compare = {
        "==": lambda it: it == value,
        "!=": lambda it: it != value,
        "<": lambda it: it < value,
        "<=": lambda it: it <= value,
        ">": lambda it: it > value,
        ">=": lambda it: it >= value,
    }[operator]
    return f"{name} {operator} {text}", lambda row: _known(_at(row, path), compare)


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '\\"') + '"'


def _at(row: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = row
    for name in path:
        value = None if value is None else value[name]
    return value


def _known(value: Any, means: Callable[[Any], bool]) -> bool | None:
    return None if value is None else means(value)


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _both(word: str, left: bool | None, right: bool | None) -> bool | None:
    deciding = word == "or"
    if left is deciding or right is deciding:
        return deciding
    return None if left is None or right is None else not deciding
