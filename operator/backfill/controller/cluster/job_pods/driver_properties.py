"""What Spark makes of ``spark.kubernetes.driver.*`` properties in a driver's pod, for the pods of
jobs. Pure.

Source: the properties of Spark's page "Running Spark on Kubernetes". Those of executors, resources
and the submission are left out.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from backfill.controller.children.manifest_merge import items
from backfill.kube.resources import Manifest

_DRIVER: Final = "spark.kubernetes.driver."
_VARIABLES: Final = "spark.kubernetes.driverEnv."
_VOLUME: Final = re.compile(
    r"(?P<type>\w+)\.(?P<name>[^.]+)\.(?P<part>mount|options)\.(?P<field>\w+)"
)
_SOURCES: Final[Mapping[str, Mapping[str, str]]] = {
    "persistentVolumeClaim": {"claimName": "claimName"},
    "hostPath": {"path": "path", "type": "type"},
    "emptyDir": {"medium": "medium", "sizeLimit": "sizeLimit"},
    "nfs": {"server": "server", "path": "path"},
}
"""Fields of a volume's source by the type and the options that Spark has for it."""


def add_properties(
    conf: Mapping[str, str], metadata: Manifest, pod: Manifest, container: Manifest
) -> None:
    """Adds what properties say to a pod's metadata and spec, and to Spark's container in it.

    What the pod has already stays; of variables, the last one counts.
    """
    for field, kind in (("labels", "label."), ("annotations", "annotation.")):
        metadata[field] = _below(conf, _DRIVER + kind) | (metadata.get(field) or {})
    selector = _below(conf, "spark.kubernetes.node.selector.")
    selector |= _below(conf, f"{_DRIVER}node.selector.")
    if selector:
        pod["nodeSelector"] = selector | (pod.get("nodeSelector") or {})
    items(container, "env").extend(_variables(conf))
    for name, path in _below(conf, f"{_DRIVER}secrets.").items():
        mount_secret(pod, container, name, path)
    for volume, mount in _volumes(_below(conf, f"{_DRIVER}volumes.")):
        _mount(pod, container, volume, mount)


def mount_secret(pod: Manifest, container: Manifest, name: str, path: str) -> None:
    """Mounts a Secret as Spark does."""
    volume = {"name": f"{name}-volume", "secret": {"secretName": name}}
    _mount(pod, container, volume, {"mountPath": path})


def _below(conf: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): conf[key] for key in conf if key.startswith(prefix)}


def _variables(conf: Mapping[str, str]) -> Iterator[Manifest]:
    for name, value in _below(conf, _VARIABLES).items():
        yield {"name": name, "value": value}
    for name, reference in _below(conf, f"{_DRIVER}secretKeyRef.").items():
        secret, _, key = reference.partition(":")
        yield {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _volumes(conf: Mapping[str, str]) -> Iterator[tuple[Manifest, Manifest]]:
    found: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for key, value in conf.items():
        if (place := _VOLUME.fullmatch(key)) and place["type"] in _SOURCES:
            made = found.setdefault((place["type"], place["name"]), {"mount": {}, "options": {}})
            made[place["part"]][place["field"]] = value
    for (kind, name), given in found.items():
        mount: dict[str, Any] = {"mountPath": given["mount"].get("path", "")}
        if "subPath" in given["mount"]:
            mount["subPath"] = given["mount"]["subPath"]
        if given["mount"].get("readOnly") == "true":
            mount["readOnly"] = True
        fields = _SOURCES[kind]
        source = {fields[key]: value for key, value in given["options"].items() if key in fields}
        if mount["mountPath"]:
            yield {"name": name, kind: source}, mount


def _mount(pod: Manifest, container: Manifest, volume: Manifest, mount: Manifest) -> None:
    _add(pod, "volumes", volume, "name")
    _add(container, "volumeMounts", mount | {"name": volume["name"]}, "mountPath")


def _add(to: Manifest, field: str, more: Manifest, key: str) -> None:
    if more[key] not in [known[key] for known in items(to, field)]:
        items(to, field).append(more)
