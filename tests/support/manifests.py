"""A manifest to start from."""

import copy
from collections.abc import Iterator
from typing import Any

import yaml

BACKFILL: dict[str, Any] = {
    "apiVersion": "backfill.dev/v1alpha1",
    "kind": "Backfill",
    "metadata": {"name": "july", "namespace": "streaming"},
    "spec": {
        "applicationRef": {"name": "rmi"},
        "window": {"start": "2021-07-11T00:00:00Z", "end": "2021-07-12T00:00:00Z"},
        "sources": [
            {"name": "impressions", "table": "lake.raw.impressions", "timestampColumn": "at"},
            {"name": "playbacks", "table": "lake.raw.playbacks", "timestampColumn": "at"},
        ],
        "outputs": [{"name": "summary", "table": "lake.ops.summary", "timestampColumn": "at"}],
    },
}
APPLICATION: dict[str, Any] = {
    "apiVersion": "sparkoperator.k8s.io/v1beta2",
    "kind": "SparkApplication",
    "metadata": {"name": "rmi", "namespace": "streaming"},
    "spec": {"type": "Python", "mode": "cluster", "mainApplicationFile": "app.py"},
}


def spark_application(name: str = "app", **spec: Any) -> dict[str, Any]:
    """A Python application of Kubeflow's Spark operator, in production."""
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": name},
        "spec": {"type": "Python", "mode": "cluster", "sparkVersion": "4.3.0", **spec},
    }


def changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with values at dotted places; None takes a field away."""
    result = copy.deepcopy(document)
    for place, value in changes.items():
        *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
        here: Any = result
        for part in path:
            here = here[part] if isinstance(part, int) else here.setdefault(part, {})
        if value is None:
            del here[last]
        else:
            here[last] = value
    return result


def spec_with(**changes: Any) -> str:
    """The Backfill as text; ``sources_0_table`` stands for ``spec.sources.0.table``."""
    return yaml.safe_dump(
        changed(
            BACKFILL,
            {"spec." + place.replace("__", "."): value for place, value in changes.items()},
        )
    )


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field and item, by the way to it."""
    if path:
        yield path
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in list(inner):
        yield from places(part, (*path, key))
