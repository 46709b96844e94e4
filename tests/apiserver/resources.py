"""The definitions that a cluster of ours has: this project's resources, and the Spark
operators'.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml
from rest import DEFINITIONS, Manifest, Rest

from repository import ROOT
from waiting import eventually

DATA = Path(__file__).parent / "data"
OWN = sorted((ROOT / "crds").glob("*.yaml"))


def definitions() -> Iterator[Manifest]:
    """Every CustomResourceDefinition."""
    for path in OWN:
        yield yaml.safe_load(path.read_text())
    for path in sorted(DATA.glob("sparkapplications.*.json")):
        yield json.loads(path.read_text())


def install(admin: Rest, manifests: Iterable[Manifest]) -> None:
    """Applies definitions and waits until their resources are served."""
    for manifest in manifests:
        admin.apply(f"{DEFINITIONS}/{manifest['metadata']['name']}", manifest).expect()
        group, version = manifest["spec"]["group"], manifest["spec"]["versions"][0]["name"]
        path = f"apis/{group}/{version}/{manifest['spec']['names']['plural']}"
        eventually(lambda path=path: admin.get(path).ok, f"{path} is served")
