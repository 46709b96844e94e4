"""A definition of Apache's SparkApplication (``spark.apache.org/v1``), for tests.

The published one is 1.4 MB of generated schema. Its own fields are listed here as they stand in it;
the pod templates in it are Kubernetes', and are taken from the definition of the other Spark
operator. It was compared with the version ``v1`` in
``build-tools/helm/spark-kubernetes-operator/crds`` of ``apache/spark-kubernetes-operator`` at
commit 013ab620.

Where ``APACHE_SPARK_CRD`` names the published file, the tests take that one.
"""

import json
import os
from pathlib import Path
from typing import Any

import yaml
from resources import DATA
from rest import Manifest

NAME = "sparkapplications.spark.apache.org"
_OTHER = DATA / "sparkapplications.sparkoperator.k8s.io.json"

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_TEXTS: Manifest = {"type": "object", "additionalProperties": _TEXT}
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_STATES = [
    "DriverEvicted",
    "DriverReady",
    "DriverReadyTimedOut",
    "DriverRequested",
    "DriverStartTimedOut",
    "DriverStarted",
    "ExecutorsStartTimedOut",
    "Failed",
    "InitializedBelowThresholdExecutors",
    "ResourceReleased",
    "RunningHealthy",
    "RunningWithBelowThresholdExecutors",
    "RunningWithPartialCapacity",
    "ScheduledToRestart",
    "SchedulingFailure",
    "Submitted",
    "Succeeded",
    "TerminatedWithoutReleaseResources",
]


def definition() -> Manifest:
    """The CustomResourceDefinition."""
    if published := os.environ.get("APACHE_SPARK_CRD"):
        return dict(yaml.safe_load(Path(published).read_text()))
    return _own_definition()


def states() -> set[str]:
    """What the operator may say of a SparkApplication."""
    (version,) = (
        version for version in definition()["spec"]["versions"] if version["name"] == "v1"
    )
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    return set(status["currentState"]["properties"]["currentStateSummary"]["enum"])


def _own_definition() -> Manifest:
    names = {
        "kind": "SparkApplication",
        "plural": "sparkapplications",
        "singular": "sparkapplication",
        "shortNames": ["sparkapp"],
    }
    schema = _fields(spec=_spec(), status=_status())
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": "spark.apache.org",
            "names": names,
            "scope": "Namespaced",
            "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
        },
    }


def _spec() -> Manifest:
    pod = _fields(podTemplateSpec=_pod_template())
    config_map = _fields(name=_TEXT, labels=_TEXTS, annotations=_TEXTS, data=_TEXTS) | {
        "required": ["name"]
    }
    parts = ("ingressMetadata", "ingressSpec", "serviceMetadata", "serviceSpec")
    ingress = _fields(**dict.fromkeys(parts, _OPEN)) | {
        "required": ["ingressMetadata", "serviceMetadata", "serviceSpec"]
    }
    fields = {
        "applicationTolerations": _tolerations(),
        "configMapSpecs": {"type": "array", "items": config_map},
        "deploymentMode": {"type": "string", "enum": ["ClientMode", "ClusterMode"]},
        "driverArgs": {"type": "array", "items": _TEXT},
        "driverServiceIngressList": {"type": "array", "items": ingress},
        "driverSpec": pod,
        "executorSpec": pod,
        "runtimeVersions": (
            _fields(jdkVersion=_TEXT, scalaVersion=_TEXT, sparkVersion=_TEXT)
            | {"required": ["sparkVersion"]}
        ),
        "sparkConf": _TEXTS,
    }
    fields |= dict.fromkeys(
        ("files", "jars", "mainClass", "proxyUser", "pyFiles", "sparkRFiles"), _TEXT
    )
    return _fields(**fields) | {"required": ["runtimeVersions"]}


def _tolerations() -> Manifest:
    timeouts = ("driverReady", "driverStart", "executorStart")
    numbers = [f"{name}TimeoutMillis" for name in timeouts]
    numbers += ["forceTerminationGracePeriodMillis", "terminationRequeuePeriodMillis"]
    restarts = ["maxRestartAttempts", "maxRestartOnFailure", "maxRestartOnSchedulingFailure"]
    restarts += [
        f"restartBackoffMillis{suffix}" for suffix in ("", "ForFailure", "ForSchedulingFailure")
    ]
    policies = ["Always", "Never", "OnFailure", "OnInfrastructureFailure"]
    restart = _fields(restartPolicy=_TEXT | {"enum": policies}, **dict.fromkeys(restarts, _NUMBER))
    restart["properties"]["restartCounterResetMillis"] = _NUMBER | {"default": -1}
    return _fields(
        applicationTimeoutConfig=_fields(**dict.fromkeys(numbers, _NUMBER)),
        instanceConfig=_fields(
            **dict.fromkeys(("initExecutors", "maxExecutors", "minExecutors"), _NUMBER)
        ),
        resourceRetainDurationMillis=_NUMBER | {"default": -1},
        resourceRetainPolicy=_TEXT | {"enum": ["Always", "Never", "OnFailure"]},
        restartConfig=restart,
        ttlAfterStopMillis=_NUMBER | {"default": -1},
    )


def _status() -> Manifest:
    texts = dict.fromkeys(("lastTransitionTime", "message"), _TEXT)
    state = _fields(
        currentStateSummary=_TEXT | {"enum": _STATES}, lastObservedDriverStatus=_OPEN, **texts
    )
    history = {"type": "object", "additionalProperties": state}
    counters = ("failureRestartCounter", "id", "restartCounter", "schedulingFailureRestartCounter")
    attempt = _fields(
        attemptInfo=_fields(**dict.fromkeys(counters, _NUMBER)), stateTransitionHistory=history
    )
    return _fields(
        currentState=state,
        stateTransitionHistory=history,
        currentAttemptSummary=attempt,
        previousAttemptSummary=attempt,
    )


def _pod_template() -> Manifest:
    other = json.loads(_OTHER.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    template: Manifest = other["properties"]["spec"]["properties"]["driver"]["properties"][
        "template"
    ]
    return template


def _fields(**fields: Any) -> Manifest:
    return {"type": "object", "properties": fields}
