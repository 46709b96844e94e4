"""Converts fields of a Kubeflow SparkApplication that only its webhook applies into a pod template,
which Spark itself applies.

The webhook may be missing, or may ignore pods with a template. What it would do is done here, and
its fields are removed, so that pods are the same with and without it. For what it does, see its
source ``internal/webhook/sparkpod_defaulter.go`` of version 2.5.2.
"""

import copy
from typing import Any, Literal

from backfill.controller.children.manifest_merge import items, part
from backfill.kube.resources import Manifest

Role = Literal["driver", "executor"]

_POD_FIELDS = {
    "affinity": "affinity",
    "dnsConfig": "dnsConfig",
    "podSecurityContext": "securityContext",
    "priorityClassName": "priorityClassName",
    "schedulerName": "schedulerName",
    "shareProcessNamespace": "shareProcessNamespace",
    "terminationGracePeriodSeconds": "terminationGracePeriodSeconds",
}
_POD_LISTS = {
    "tolerations": "tolerations",
    "hostAliases": "hostAliases",
    "initContainers": "initContainers",
    "sidecars": "containers",
}
_CONTAINER_FIELDS = ("lifecycle", "securityContext")
_CONTAINER_LISTS = ("env", "envFrom")
_LOCAL_DIRECTORIES = "spark-local-dir-"
"""Prefix of volumes that are Spark's local disks. Spark operators pass them on as properties."""
_LONGEST_VOLUME_NAME = 63
_HADOOP_CONF = "/etc/hadoop/conf"


def container_name(role: Role) -> str:
    """Name of the container that runs Spark."""
    return f"spark-kubernetes-{role}"


def spark_container(template: Manifest, role: Role) -> Manifest:
    """The container of a template that runs Spark: the one with its name, or else the first, as
    Spark chooses it.
    """
    containers = items(part(template, "spec"), "containers")
    name = container_name(role)
    found: Manifest | None = next((each for each in containers if each.get("name") == name), None)
    if found is None and containers:
        found = containers[0]
    if found is None:
        found = {}
        containers.append(found)
    found["name"] = name
    return found


def end_with_spark(template: Manifest, role: Role) -> None:
    """Makes the other containers of a pod end together with Spark. A pod occupies its node until
    all its containers have ended, and a sidecar of a streaming application does not end by itself.
    """
    spec, container = part(template, "spec"), spark_container(template, role)
    beside = [
        {**each, "restartPolicy": "Always"}
        for each in items(spec, "containers")
        if each is not container
    ]
    spec["containers"] = [container]
    _extend(spec, "initContainers", beside)


def take_template(pod: Manifest, role: Role, application: Manifest) -> Manifest:
    """Removes the template, and everything that belongs into it, from ``pod``, the driver or
    executor of an application, and returns it.
    """
    template: Manifest = pod.pop("template", None) or {}
    container = spark_container(template, role)
    spec = part(template, "spec")
    _move_fields(pod, spec, container)
    _move_volumes(pod, spec, container, application.get("volumes") or [])
    _move_config_maps(pod, spec, container)
    if application.get("hadoopConfigMap"):
        _mount_config_map(
            spec, container, "hadoop-configmap-volume", application["hadoopConfigMap"], _HADOOP_CONF
        )
        items(container, "env").append({"name": "HADOOP_CONF_DIR", "value": _HADOOP_CONF})
    return template


def _move_fields(pod: Manifest, spec: Manifest, container: Manifest) -> None:
    for field, target in _POD_FIELDS.items():
        if (value := pod.pop(field, None)) is not None:
            spec[target] = value
    for field, target in _POD_LISTS.items():
        _extend(spec, target, pod.pop(field, None))
    for field in _CONTAINER_FIELDS:
        if (value := pod.pop(field, None)) is not None:
            container[field] = value
    for field in _CONTAINER_LISTS:
        _extend(container, field, pod.pop(field, None))
    if selector := pod.pop("nodeSelector", None):
        part(spec, "nodeSelector").update(selector)
    if pod.pop("hostNetwork", None):
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if gpu := pod.pop("gpu", None):
        part(container, "resources", "limits")[gpu["name"]] = gpu["quantity"]


def _extend(target: Manifest, field: str, more: list[Any] | None) -> None:
    if more:
        items(target, field).extend(more)


def _move_volumes(
    pod: Manifest, spec: Manifest, container: Manifest, volumes: list[Manifest]
) -> None:
    mounts = pod.pop("volumeMounts", None) or []
    local = [mount for mount in mounts if mount["name"].startswith(_LOCAL_DIRECTORIES)]
    if local:
        pod["volumeMounts"] = local
    moved = [mount for mount in mounts if mount not in local]
    names = {mount["name"] for mount in moved}
    _extend(
        spec, "volumes", [copy.deepcopy(volume) for volume in volumes if volume["name"] in names]
    )
    _extend(container, "volumeMounts", moved)


def _move_config_maps(pod: Manifest, spec: Manifest, container: Manifest) -> None:
    for reference in pod.pop("configMaps", None) or []:
        volume = f"{reference['name']}-vol"[:_LONGEST_VOLUME_NAME]
        _mount_config_map(spec, container, volume, reference["name"], reference["path"])


def _mount_config_map(
    spec: Manifest, container: Manifest, volume: str, name: str, path: str
) -> None:
    items(spec, "volumes").append({"name": volume, "configMap": {"name": name}})
    items(container, "volumeMounts").append({"name": volume, "mountPath": path, "readOnly": True})
