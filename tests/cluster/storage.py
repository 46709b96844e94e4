"""Where a catalog, its tables and workspaces are, and what pods need to get there."""

from dataclasses import dataclass, field
from pathlib import Path

from rest import Manifest

from iceberg_tables import catalog_properties

_CLAIM = "lake"


@dataclass(frozen=True)
class Storage:
    """What is told of it."""

    properties: dict[str, str]
    """The catalog's, as PyIceberg names them."""
    workspace: str
    """Where Backfills keep plans and checkpoints."""
    volumes: list[Manifest] = field(default_factory=list)
    mounts: list[Manifest] = field(default_factory=list)
    directory: Path | None = None
    """Of the nodes, which the volumes are claims of."""

    def volumes_of(self, namespace: str) -> list[Manifest]:
        """What the volumes of a namespace's pods are claims of: Pod Security admits claims, and no
        directories of nodes.
        """
        if self.directory is None:
            return []
        size, modes = {"storage": "1Gi"}, ["ReadWriteMany"]
        volume = {
            "capacity": size,
            "accessModes": modes,
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(self.directory)},
            "claimRef": {"name": _CLAIM, "namespace": namespace},
        }
        claim = {
            "accessModes": modes,
            "storageClassName": "",
            "volumeName": namespace,
            "resources": {"requests": size},
        }
        version = {"apiVersion": "v1"}
        return [
            version | {"kind": "PersistentVolume", "metadata": {"name": namespace}, "spec": volume},
            version
            | {"kind": "PersistentVolumeClaim", "metadata": {"name": _CLAIM}, "spec": claim},
        ]


def shared_directory(directory: Path) -> Storage:
    """A directory of the node, at the same path in pods."""
    return Storage(
        properties=catalog_properties(directory),
        workspace=str(directory / "work"),
        volumes=[{"name": "lake", "persistentVolumeClaim": {"claimName": _CLAIM}}],
        mounts=[{"name": "lake", "mountPath": str(directory)}],
        directory=directory,
    )
