"""Merges and changes parts of manifests, which are plain JSON."""

import copy
from collections.abc import Sequence
from typing import Any

from backfill.kube.resources import Manifest


def merged(base: Any, over: Any) -> Any:
    """``base`` with ``over`` merged over it: mappings are merged by key, and lists of named items
    by name; null removes.

    Other lists and values are replaced. Neither argument is changed, or shared with the result.
    """
    if isinstance(base, dict) and isinstance(over, dict):
        kept = {key: copy.deepcopy(value) for key, value in base.items() if key not in over}
        return kept | {
            key: merged(base.get(key), value) for key, value in over.items() if value is not None
        }
    if _named(base) and _named(over):
        return _merged_by_name(base, over)
    return copy.deepcopy(over)


def part(manifest: Manifest, *path: str) -> Manifest:
    """A part of a manifest, created if it is missing. It can be changed in place."""
    for key in path:
        manifest = manifest.setdefault(key, {})
    return manifest


def items(manifest: Manifest, key: str) -> list[Any]:
    """A list of a manifest, created if it is missing. It can be changed in place."""
    found: list[Any] = manifest.setdefault(key, [])
    return found


def without(manifest: Manifest, keys: Sequence[str]) -> Manifest:
    """A copy without some of its fields."""
    return {key: copy.deepcopy(value) for key, value in manifest.items() if key not in keys}


def _named(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and "name" in item for item in value)
    )


def _merged_by_name(base: list[Manifest], over: list[Manifest]) -> list[Manifest]:
    news = {item["name"]: item for item in over}
    result = [merged(item, news.pop(item["name"], {})) for item in base]
    return result + [merged({}, item) for item in news.values()]
