"""The permissions as they are shipped, so that tests run under exactly these."""

from pathlib import Path
from typing import Any

import yaml
from identities import Rules
from resources import ROOT

_RBAC = ROOT / "deploy" / "rbac"


def shipped(file: str) -> list[dict[str, Any]]:
    """The manifests of one file."""
    return [manifest for manifest in yaml.safe_load_all((_RBAC / file).read_text()) if manifest]


def rules_of(file: str, kind: str, name: str) -> Rules:
    """The rules of one Role or ClusterRole in it."""
    return next(each["rules"] for each in shipped(file) if (each["kind"], each["metadata"]["name"]) == (kind, name))


def shipped_files() -> list[Path]:
    """Every file of permissions."""
    return sorted(_RBAC.glob("*.yaml"))
