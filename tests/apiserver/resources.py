"""The definitions that a cluster of ours has: this project's resources, and the Spark operators'."""

import json
from collections.abc import Iterator
from pathlib import Path

import yaml
from rest import Manifest

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"
OWN = sorted((ROOT / "crds").glob("*.yaml"))


def definitions() -> Iterator[Manifest]:
    """Every CustomResourceDefinition."""
    for path in OWN:
        yield yaml.safe_load(path.read_text())
    for path in sorted(DATA.glob("sparkapplications.*.json")):
        yield json.loads(path.read_text())
