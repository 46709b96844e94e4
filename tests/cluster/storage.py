"""Where a catalog, its tables and workspaces are, and what pods need to get there."""

from dataclasses import dataclass, field
from pathlib import Path

from rest import Manifest

from iceberg_tables import catalog_properties

_SPARK_USER = {"runAsUser": 185, "runAsGroup": 0, "fsGroup": 0}


@dataclass(frozen=True)
class Storage:
    """What is told of it."""

    properties: dict[str, str]
    """The catalog's, as PyIceberg names them."""
    workspace: str
    """Where Backfills keep plans and checkpoints."""
    volumes: list[Manifest] = field(default_factory=list)
    mounts: list[Manifest] = field(default_factory=list)
    operator_user: Manifest = field(default_factory=dict)
    """Whom the operator has to be to write there; empty where that does not matter."""


def shared_directory(directory: Path) -> Storage:
    """A directory of the node, at the same path in pods. The operator is the user that the Spark
    image has.
    """
    return Storage(
        properties=catalog_properties(directory),
        workspace=str(directory / "work"),
        volumes=[{"name": "lake", "hostPath": {"path": str(directory)}}],
        mounts=[{"name": "lake", "mountPath": str(directory)}],
        operator_user=_SPARK_USER,
    )
