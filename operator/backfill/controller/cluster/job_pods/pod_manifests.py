"""The objects of a job that runs in a pod: a JobReport for its result, a ConfigMap with the job,
and the pod. Pure.

It is a plain Pod and not a batch Job. Each job is tried once, and the controller decides about
failures, which retries of a Job would hide; and a pod's own status says why it does not start. The
pod is made from the driver's template, so that it has the identity, volumes and scheduling of the
application's driver. Its image is of the operator's version, and begins its program by itself;
but what an application reads and writes is found with the application's own image.
"""

import base64
import copy
import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from backfill.api.backfill import API_VERSION, Backfill
from backfill.api.job_report import JOB_VARIABLE, MOST_PROGRESS
from backfill.api.pods import PodResources
from backfill.controller.children.child_manifests import dialect, preview_launch
from backfill.controller.children.injection import LAUNCHER_VOLUME
from backfill.controller.children.manifest_merge import items, part
from backfill.controller.children.pod_template import spark_container
from backfill.controller.cluster.job_pods.admission import confined
from backfill.controller.cluster.job_pods.driver_properties import add_properties, mount_secret
from backfill.controller.cluster.job_pods.packed_jobs import encode_job, job_identity
from backfill.controller.jobs.any_job import Job, job_kind
from backfill.controller.jobs.kinds.resolve import ResolveJob
from backfill.kube.cache import identity
from backfill.kube.object_names import (
    ATTEMPT_LABEL,
    GROUP,
    UID_LABEL,
    backfill_labels,
    owner_reference,
)
from backfill.kube.resources import Manifest
from backfill.protocol.driver_settings import SETTINGS_VARIABLE

JOB_LABEL: Final = f"{GROUP}/job"
"""Label with the kind of job, on its objects."""
JOB_DIRECTORY: Final = "/etc/backfill/job"
"""Mount path of the ConfigMap."""
JOB_KEY: Final = "job"
RESULT_KEY: Final = "result"
PROGRESS_KEY: Final = "progress"

LONGEST_SECONDS: Final = 21_600
"""Time limit of a pod in seconds. No job takes six hours unless it hangs."""
_GRACE_SECONDS = 5
_PREFIX_CHARACTERS = 40
_HASH_CHARACTERS = 10
_VOLUME = "backfill-job"
_OF_THE_DRIVER = (
    *("command", "args", "workingDir", "imagePullPolicy", "ports"),
    *("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"),
)
"""Fields of the driver's container that belong to its image or its program."""
_GOOGLE_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
_ACCOUNT = "spark.kubernetes.authenticate.driver.serviceAccountName"
_PULL_SECRETS = "spark.kubernetes.container.image.pullSecrets"
_WITH_THE_DRIVERS_PYTHON: Final = (
    'exec "${PYSPARK_DRIVER_PYTHON:-${PYSPARK_PYTHON:-python3}}" -I -m backfill.job'
)
_CPU_REQUEST = "250m"
_CPU_LIMIT = "2"


def job_name(backfill: Backfill, job: Job) -> str:
    """Name of a job's objects. The same job of the same Backfill has the same name."""
    content = hashlib.sha256(backfill.metadata.uid.encode() + job_identity(job)).hexdigest()[
        :_HASH_CHARACTERS
    ]
    return f"{_prefix(backfill.metadata.name)}-job-{content}"


def is_job_name(backfill: str, name: str) -> bool:
    """Whether a pod that runs a job of this Backfill may have this name."""
    return (
        re.fullmatch(rf"{re.escape(_prefix(backfill))}-job-[0-9a-f]{{{_HASH_CHARACTERS}}}", name)
        is not None
    )


def _prefix(backfill: str) -> str:
    return backfill[:_PREFIX_CHARACTERS].rstrip("-")


def job_config_map(backfill: Backfill, job: Job) -> Manifest:
    """The ConfigMap from which the pod reads its job. It is immutable."""
    content = base64.b64encode(encode_job(job)).decode()
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(backfill, job)}
    return made | {"binaryData": {JOB_KEY: content}, "immutable": True}


def job_report(backfill: Backfill, job: Job) -> Manifest:
    """The JobReport, whose status the pod writes progress and result into."""
    spec = {"backfill": backfill.metadata.name, "job": job_kind(type(job))}
    return {
        "apiVersion": API_VERSION,
        "kind": "JobReport",
        "metadata": _metadata(backfill, job),
        "spec": spec,
    }


def report_essence(report: Manifest) -> Manifest:
    """Reduces a JobReport for the cache: of the result,
    which may be large, only whether there is one.
    """
    status = {
        PROGRESS_KEY: _said(report, PROGRESS_KEY)[:MOST_PROGRESS],
        RESULT_KEY: _said(report, RESULT_KEY)[:1],
    }
    return {"metadata": identity(report), "status": status}


def result_of(report: Manifest | None) -> str:
    """The encoded end of the job; empty until it is recorded."""
    return _said(report, RESULT_KEY)


def progress_of(report: Manifest | None) -> str:
    """The encoded progress of the job; empty until it is recorded."""
    return _said(report, PROGRESS_KEY)


def _said(report: Manifest | None, key: str) -> str:
    return str(((report or {}).get("status") or {}).get(key, ""))


@dataclass(frozen=True, slots=True)
class JobImage:
    """The image of all job pods."""

    name: str
    pull_policy: str | None = None
    """None for Kubernetes' default."""


def job_pod(backfill: Backfill, job: Job, production: Manifest, image: JobImage) -> Manifest:
    """The pod: the application's driver pod with another program."""
    template, application = _driver(production, backfill)
    spec, container = part(template, "spec"), spark_container(template, "driver")
    name = job_name(backfill, job)
    _leave_out_the_driver(spec, container)
    _identify(spec, container, application)
    items(spec, "volumes").append(
        {"name": _VOLUME, "configMap": {"name": name, "items": [{"key": JOB_KEY, "path": JOB_KEY}]}}
    )
    items(container, "volumeMounts").append(
        {"name": _VOLUME, "mountPath": JOB_DIRECTORY, "readOnly": True}
    )
    items(container, "env").append({"name": JOB_VARIABLE, "value": name})
    container |= {
        # a pod that cannot even start writes no result
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": _resources(backfill.spec.planning.resources),
        "securityContext": confined(container.get("securityContext") or {}),
    }
    if needs_program(job):
        container |= _with_program(application)
    else:
        container["image"] = image.name
        if image.pull_policy:
            container["imagePullPolicy"] = image.pull_policy
    spec |= {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": LONGEST_SECONDS,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
    }
    metadata = _metadata(backfill, job)
    given = part(template, "metadata")
    own = {
        key: value
        for key, value in _labels(given, application).items()
        if key not in (ATTEMPT_LABEL, UID_LABEL)
    }
    metadata["labels"] = own | metadata["labels"]
    metadata["annotations"] = (given.get("annotations") or {}) | (
        part(application, "driver").get("annotations") or {}
    )
    add_properties(application.get("sparkConf") or {}, metadata, spec, container)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def needs_program(job: Job) -> bool:
    """Whether a job runs the application's main program, so that its pod has the image of the
    application's driver, and not that of the operator's version.
    """
    return isinstance(job, ResolveJob)


def _with_program(application: Manifest) -> Manifest:
    """Fields of a container that runs a job with the application's image and its Python."""
    image = part(application, "driver").get("image") or application.get("image")
    policy = application.get("imagePullPolicy")
    return {
        "image": image,
        "command": ["/bin/sh", "-c", _WITH_THE_DRIVERS_PYTHON],
        **({"imagePullPolicy": policy} if policy else {}),
    }


def _resources(chosen: PodResources) -> Manifest:
    """Requests and limits of everything that a ResourceQuota may require."""
    same = {"memory": chosen.memory, "ephemeral-storage": chosen.ephemeral_storage}
    return {
        "requests": {"cpu": chosen.cpu or _CPU_REQUEST} | same,
        "limits": {"cpu": chosen.cpu or _CPU_LIMIT} | same,
    }


def _metadata(backfill: Backfill, job: Job) -> Manifest:
    metadata = backfill.metadata
    return {
        "name": job_name(backfill, job),
        "namespace": metadata.namespace,
        "labels": backfill_labels(metadata.name) | {JOB_LABEL: job_kind(type(job))},
        "ownerReferences": [owner_reference(metadata.name, metadata.uid)],
    }


def _driver(production: Manifest, backfill: Backfill) -> tuple[Manifest, Manifest]:
    """The template of the driver that an attempt would have,
    and the application's spec around it.
    """
    speech = dialect(production["apiVersion"])
    child = copy.deepcopy(speech.child(production, preview_launch(backfill)))
    return speech.pods(child)[0], child["spec"]


def _labels(metadata: Manifest, application: Manifest) -> dict[str, str]:
    return (metadata.get("labels") or {}) | (part(application, "driver").get("labels") or {})


def _leave_out_the_driver(spec: Manifest, container: Manifest) -> None:
    spec["volumes"] = [
        volume for volume in spec.get("volumes") or [] if volume["name"] != LAUNCHER_VOLUME
    ]
    container["volumeMounts"] = [
        each for each in container.get("volumeMounts") or [] if each["name"] != LAUNCHER_VOLUME
    ]
    container["env"] = [
        each for each in container.get("env") or [] if each["name"] != SETTINGS_VARIABLE
    ]
    for field in _OF_THE_DRIVER:
        container.pop(field, None)


def _identify(spec: Manifest, container: Manifest, application: Manifest) -> None:
    """Sets what Spark or its operator sets on a driver's
    pod from the application's fields and properties.
    """
    conf: Mapping[str, str] = application.get("sparkConf") or {}
    driver = part(application, "driver")
    secrets = application.get("imagePullSecrets") or [
        name for name in conf.get(_PULL_SECRETS, "").split(",") if name
    ]
    chosen: dict[str, Any] = {
        "serviceAccountName": driver.get("serviceAccount") or conf.get(_ACCOUNT),
        "imagePullSecrets": [{"name": name} for name in secrets],
    }
    spec |= {field: value for field, value in chosen.items() if value}
    if selector := application.get("nodeSelector"):
        spec["nodeSelector"] = selector | (spec.get("nodeSelector") or {})
    for secret in driver.get("secrets") or []:
        mount_secret(spec, container, secret["name"], secret["path"])
        if secret.get("secretType") == "GCPServiceAccount":
            file = posixpath.join(secret["path"], "key.json")
            items(container, "env").append({"name": _GOOGLE_CREDENTIALS, "value": file})
    items(container, "env").extend(
        {"name": name, "value": value} for name, value in (driver.get("envVars") or {}).items()
    )
    for name, reference in (driver.get("envSecretKeyRefs") or {}).items():
        items(container, "env").append({"name": name, "valueFrom": {"secretKeyRef": reference}})
