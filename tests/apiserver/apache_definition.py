"""A definition of Apache's SparkApplication (``spark.apache.org/v1``), for tests.

The published one is 1.4 MB of generated schema. Its own fields are listed here as they stand in it; the pod templates in it
are Kubernetes', and are taken from the definition of the other Spark operator.
"""

import json
from typing import Any

from resources import DATA
from rest import Manifest

NAME = "sparkapplications.spark.apache.org"
_OTHER = DATA / "sparkapplications.sparkoperator.k8s.io.json"

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_TEXTS: Manifest = {"type": "object", "additionalProperties": _TEXT}
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition() -> Manifest:
    """The CustomResourceDefinition."""
    names = {
        "kind": "SparkApplication",
        "plural": "sparkapplications",
        "singular": "sparkapplication",
        "shortNames": ["sparkapp"],
    }
    schema = _fields(spec=_spec(), status=_status()) | {"required": ["spec"]}
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
    config_map = _fields(name=_TEXT, labels=_TEXTS, annotations=_TEXTS, data=_TEXTS)
    fields = {
        "applicationTolerations": _tolerations(),
        "configMapSpecs": {"type": "array", "items": config_map},
        "deploymentMode": {"type": "string", "enum": ["ClientMode", "ClusterMode"]},
        "driverArgs": {"type": "array", "items": _TEXT},
        "driverServiceIngressList": {"type": "array", "items": _OPEN},
        "driverSpec": pod,
        "executorSpec": pod,
        "runtimeVersions": _fields(jdkVersion=_TEXT, scalaVersion=_TEXT, sparkVersion=_TEXT) | {"required": ["sparkVersion"]},
        "sparkConf": _TEXTS,
    }
    fields |= dict.fromkeys(("files", "jars", "mainClass", "proxyUser", "pyFiles", "sparkRFiles"), _TEXT)
    return _fields(**fields) | {"required": ["runtimeVersions"]}


def _tolerations() -> Manifest:
    timeouts = ("driverReady", "driverStart", "executorStart")
    numbers = [f"{name}TimeoutMillis" for name in timeouts]
    numbers += ["forceTerminationGracePeriodMillis", "terminationRequeuePeriodMillis"]
    restarts = ["maxRestartAttempts", "maxRestartOnFailure", "maxRestartOnSchedulingFailure", "restartCounterResetMillis"]
    restarts += [f"restartBackoffMillis{suffix}" for suffix in ("", "ForFailure", "ForSchedulingFailure")]
    policies = ["Always", "Never", "OnFailure", "OnInfrastructureFailure"]
    return _fields(
        applicationTimeoutConfig=_fields(**dict.fromkeys(numbers, _NUMBER)),
        instanceConfig=_fields(**dict.fromkeys(("initExecutors", "maxExecutors", "minExecutors"), _NUMBER)),
        resourceRetainDurationMillis=_NUMBER | {"default": -1},
        resourceRetainPolicy=_TEXT | {"enum": ["Always", "Never", "OnFailure"]},
        restartConfig=_fields(restartPolicy=_TEXT | {"enum": policies}, **dict.fromkeys(restarts, _NUMBER)),
        ttlAfterStopMillis=_NUMBER | {"default": -1},
    )


def _status() -> Manifest:
    state = _fields(currentStateSummary=_TEXT, lastTransitionTime=_TEXT, message=_TEXT, lastObservedDriverStatus=_OPEN)
    history = {"type": "object", "additionalProperties": state}
    return _fields(currentState=state, stateTransitionHistory=history, currentAttemptSummary=_OPEN, previousAttemptSummary=_OPEN)


def _pod_template() -> Manifest:
    other = json.loads(_OTHER.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    template: Manifest = other["properties"]["spec"]["properties"]["driver"]["properties"]["template"]
    return template


def _fields(**fields: Any) -> Manifest:
    return {"type": "object", "properties": fields}
