"""Reads the documents of a manifest file as JSON values, strictly.

YAML as Kubernetes reads it, with two differences: a duplicate key is an error that names its line,
instead of the last one taking effect, and times remain text.
"""

import json
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any

import yaml
from pydantic import JsonValue

from backfill.api.errors import InvalidManifest, Problem
from backfill.api.json_text import MOST_LEVELS, is_within

Document = dict[str, JsonValue]
_MOST_TEXT = 4 * 2**20
"""Most characters. The API server takes no object of that length."""
_MOST_VALUES = 50_000
"""Most values, with those that aliases repeat. A large SparkApplication has a thousand, and the
reader of YAML takes a kilobyte for each.
"""
_MOST_DIGITS = 100
"""Most characters of a number."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _TooLargeError(Exception):
    """A few lines of aliases can mean billions of values."""


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._composed = 0
        self._sizes: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        is_alias, node = self.check_event(yaml.AliasEvent), super().compose_node(parent, index)
        if node is None or (is_alias and node not in self._sizes):
            raise _TooLargeError  # it contains itself
        if not is_alias:
            self._composed += 1
            self._sizes[node] = 1 + sum(self._sizes[part] for part in _parts(node))
        too_long = node.tag in _NUMBERS and len(node.value) > _MOST_DIGITS
        if too_long or max(self._composed, self._sizes[node]) > _MOST_VALUES:
            raise _TooLargeError
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        merged = isinstance(node, yaml.MappingNode) and any(
            key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value
        )
        if merged:  # what a mapping says itself counts, and may be in the merged one as well
            self.flatten_mapping(node)
            return super().construct_mapping(node, deep)
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key!r}", key_node.start_mark
                )
            seen.add(repr(key) if not isinstance(key, Hashable) else key)
        return super().construct_mapping(node, deep)


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_documents(text: str, name: str) -> list[Document]:
    """The non-empty documents of a YAML or JSON text. ``name`` identifies the text in problems.

    Raises:
        InvalidManifest: it is not well-formed, or a document is not a mapping.
    """
    values = None
    if len(text) <= _MOST_TEXT:
        with suppress(RecursionError, _TooLargeError):
            values = _json(text) or _yaml(text, name)
    if values is None or not is_within(values, levels=MOST_LEVELS, values=_MOST_VALUES):
        raise InvalidManifest(
            Problem(
                "",
                f"{name}: is too large or nested too deeply: it may have {_MOST_VALUES:,} values,"
                f" with those that aliases repeat, in {MOST_LEVELS} levels",
                "keep only the fields of the resource",
            )
        )
    strangers = [
        number
        for number, value in enumerate(values, 1)
        if value is not None and not isinstance(value, dict)
    ]
    if strangers:
        raise InvalidManifest(
            [
                Problem(
                    "",
                    f"{name}: document {number} is not a resource",
                    "add apiVersion, kind and metadata",
                )
                for number in strangers
            ]
        )
    documents = [value for value in values if isinstance(value, dict)]
    return [each for document in documents for each in _items(document)]


def _items(document: Document) -> list[Document]:
    """The resources of a List, as ``kubectl get -o yaml`` prints several; else the document."""
    items = document.get("items")
    if document.get("kind") != "List" or not isinstance(items, list):
        return [document]
    return [each for each in items if isinstance(each, dict)]


def _json(text: str) -> list[JsonValue] | None:
    """The document of a JSON text; None if it is not JSON.

    JSON is read before YAML, because it may be indented with tabs and YAML may not.
    """
    if not text.lstrip().startswith("{"):
        return None

    try:
        return [json.loads(text, object_pairs_hook=_unique)]
    except ValueError:
        return None  # the YAML reader can say what is wrong and where


def _unique(pairs: list[tuple[str, JsonValue]]) -> JsonValue:
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def _yaml(text: str, name: str) -> list[JsonValue]:
    try:
        values = list(yaml.load_all(text, Loader=_Loader))
        return [json.loads(json.dumps(value, allow_nan=False)) for value in values]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if "quoted scalar" in (error.context or "") and "end of" in (error.problem or ""):
            mark = error.context_mark  # where the quote begins
        place = f"{name}:{_line_and_column(mark)}" if mark else name
        raise InvalidManifest(
            Problem("", f"{place}: {error.problem or error.context}", "fix the YAML syntax")
        ) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidManifest(
            Problem("", f"{name}: {reason}", "use only the types that JSON has")
        ) from None


def _line_and_column(mark: yaml.Mark) -> str:
    return f"{mark.line + 1}:{mark.column + 1}"


def composed(text: str) -> list[yaml.Node]:
    """The documents of a manifest file with their positions; none if the text is not readable."""
    if len(text) > _MOST_TEXT:
        return []
    try:
        return list(yaml.compose_all(text, Loader=_Loader))
    except (yaml.YAMLError, _TooLargeError, RecursionError):
        return []


def position_of(documents: Sequence[yaml.Node], kind: str, name: str, path: Sequence[str]) -> str:
    """Line and column of a field of a resource, as ``12:5``; of the closest field around it if it
    is missing. Empty if no document is that resource.

    ``name`` is that of the resource; any, if empty. ``path`` has its keys and indexes.
    """
    for document in documents:
        named = _entry(_entry(document, "metadata")[1], "name")[1]
        if _value(_entry(document, "kind")[1]) == kind and name in ("", _value(named)):
            return _position_in(document, path)
    return ""


def _position_in(document: yaml.Node, path: Sequence[str]) -> str:
    mark, here = document.start_mark, document
    for part in path:
        key, found = _entry(here, part)
        if key is None or found is None:
            break
        mark, here = key.start_mark, found
    return _line_and_column(mark)


def _entry(node: yaml.Node | None, part: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """The key and the value of a mapping, or an item of a list as both."""
    if isinstance(node, yaml.MappingNode):
        return next((pair for pair in node.value if _value(pair[0]) == part), (None, None))
    if isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part) < len(node.value):
        return (node.value[int(part)],) * 2
    return None, None


def _value(node: yaml.Node | None) -> str | None:
    return node.value if isinstance(node, yaml.ScalarNode) else None
