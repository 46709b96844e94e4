"""Writes a proposed Backfill as a manifest with comments."""

import json
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from backfill.api.backfill import API_VERSION, KIND
from backfill.api.base import printable
from backfill.controller.proposing.commented import TODO, Commented

_WIDTH = 100
_PLAIN = re.compile(r"[A-Za-z][\w./-]*")
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def manifest(
    name: str, namespace: str | None, spec: Mapping[str, Any], notes: Sequence[str] = ()
) -> str:
    """The text of the manifest. ``notes`` go above it: what could not be found out."""
    metadata = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    head = [
        "Proposed by `backfill init`. The comment above each value explains where it comes from;"
        " resolve the TODO lines yourself.",
        *(f"{TODO}{note}" for note in notes),
    ]
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    return "\n".join([*_commented(tuple(head), 0), *lines(document, 0)]) + "\n"


def lines(value: Mapping[str, Any], indent: int) -> Iterator[str]:
    """The lines of a mapping."""
    pad = " " * indent
    for key, each in value.items():
        comments, inner = (each.comments, each.value) if isinstance(each, Commented) else ((), each)
        yield from _commented(comments, indent)
        if isinstance(inner, Mapping):
            yield f"{pad}{key}:"
            yield from lines(inner, indent + 2)
        elif isinstance(inner, list) and not all(isinstance(one, str) for one in inner):
            yield f"{pad}{key}:"
            for one in inner:
                yield from _item(one, indent + 2)
        elif isinstance(inner, list):
            yield f"{pad}{key}: [{', '.join(map(_scalar, inner))}]"
        else:
            yield f"{pad}{key}: {_scalar(inner)}"


def _item(value: Any, indent: int) -> Iterator[str]:
    """The lines of an element of a list."""
    comments, inner = (value.comments, value.value) if isinstance(value, Commented) else ((), value)
    yield from _commented(comments, indent)
    if not isinstance(inner, Mapping):
        yield f"{' ' * indent}- {_scalar(inner)}"
        return
    first, *others = lines(inner, indent + 2)
    yield f"{' ' * indent}- {first.lstrip()}"
    yield from others


def _commented(comments: Sequence[str], indent: int) -> Iterator[str]:
    prefix = f"{' ' * indent}# "
    for comment in comments:
        text = printable(" ".join(comment.split()))
        yield from textwrap.wrap(
            text,
            _WIDTH,
            initial_indent=prefix,
            subsequent_indent=prefix + ("  " if text.startswith(TODO) else ""),
            break_long_words=False,
            break_on_hyphens=False,
        )


def _scalar(value: object) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    plain = _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT
    duration = re.fullmatch(r"(\d+(d|h|ms|m|s))+", value)
    if plain or duration:
        return value
    quoted = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=math.inf)
    return quoted.rstrip("\n")
