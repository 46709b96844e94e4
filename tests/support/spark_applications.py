"""Production SparkApplications as teams write them, for tests of what a backfill makes of them."""

import copy
from typing import Any

from backfill.api.backfill import Backfill

Manifest = dict[str, Any]

BACKFILL = Backfill.model_validate(
    {
        "metadata": {"name": "rmi-july-11", "namespace": "streaming", "uid": "6f1c"},
        "spec": {
            "applicationRef": {"name": "rmi"},
            "window": {"start": "2021-07-11T00:00:00Z", "end": "2021-07-12T00:00:00Z"},
            "sources": [
                {
                    "name": "plays",
                    "table": "lake.raw.plays",
                    "timestampColumn": "at",
                    "filter": "note == 'costs $(HOME) or $5'",
                }
            ],
            "outputs": [{"name": "counts", "table": "lake.ops.counts"}],
            "scaling": {"minExecutors": 2, "maxExecutors": 40},
            "workspace": "s3://lake/backfills",
            "catalogs": [
                {"name": "lake", "secretRef": {"name": "lake-catalog"}},
                {"name": "other"},
            ],
        },
    }
)

KUBEFLOW: Manifest = {
    "apiVersion": "sparkoperator.k8s.io/v1beta2",
    "kind": "SparkApplication",
    "metadata": {
        "name": "rmi",
        "namespace": "streaming",
        "uid": "prod",
        "resourceVersion": "7",
        "labels": {
            "team": "ads",
            "kueue.x-k8s.io/queue-name": "spark",
            "app.kubernetes.io/instance": "argo-app",
            "sparkoperator.k8s.io/scheduled-app-name": "nightly",
        },
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "cost-centre": "7",
        },
    },
    "spec": {
        "type": "Python",
        "mode": "cluster",
        "sparkVersion": "4.3.0",
        "image": "registry.example/rmi:1.4",
        "imagePullPolicy": "IfNotPresent",
        "imagePullSecrets": ["registry"],
        "mainApplicationFile": "local:///opt/app/main.py",
        "arguments": ["--brokers", "kafka:9092"],
        "deps": {
            "jars": ["local:///opt/jars/kafka.jar"],
            "pyFiles": ["local:///opt/app/lib.zip"],
            "packages": ["a:b:1"],
        },
        "hadoopConf": {"fs.s3a.endpoint": "http://minio"},
        "hadoopConfigMap": "hadoop",
        "sparkConf": {
            "spark.sql.session.timeZone": "UTC",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": "s3a://logs",
            "spark.sql.shuffle.partitions": "800",
            "spark.sql.streaming.checkpointLocation": "s3a://prod/checkpoints",
            "spark.dynamicAllocation.enabled": "true",
            "spark.kubernetes.driver.pod.name": "rmi-driver",
            "spark.kubernetes.container.image": "registry.example/old:1",
            "spark.metrics.conf": "/etc/metrics.properties",
            "spark.remote": "sc://spark-connect.production",
            "spark.api.mode": "connect",
            "spark.app.id": "rmi",
        },
        "volumes": [
            {"name": "geo", "configMap": {"name": "geo"}},
            {"name": "keys", "secret": {"secretName": "keys"}},
            {"name": "unused", "emptyDir": {}},
            {"name": "spark-local-dir-1", "emptyDir": {"sizeLimit": "10Gi"}},
        ],
        "nodeSelector": {"pool": "streaming"},
        "restartPolicy": {"type": "Always", "onFailureRetryInterval": 5},
        "monitoring": {
            "exposeDriverMetrics": True,
            "exposeExecutorMetrics": True,
            "prometheus": {"jmxExporterJar": "/jmx.jar", "port": 8090},
        },
        "sparkUIOptions": {"servicePort": 4040},
        "driverIngressOptions": [
            {"servicePort": 4040, "servicePortName": "ui", "ingressURLFormat": "rmi.example"}
        ],
        "dynamicAllocation": {"enabled": True, "minExecutors": 1, "maxExecutors": 90},
        "timeToLiveSeconds": 60,
        "driver": {
            "cores": 2,
            "coreRequest": "500m",
            "memory": "2g",
            "memoryLimit": "3g",
            "serviceAccount": "rmi",
            "labels": {"app": "rmi"},
            "annotations": {"prometheus.io/scrape": "true", "sidecar.istio.io/inject": "false"},
            "secrets": [{"name": "gcp", "path": "/mnt/gcp", "secretType": "Generic"}],
            "configMaps": [{"name": "flags", "path": "/etc/flags"}],
            "env": [
                {"name": "REGION", "value": "us"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "api", "key": "token"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "common"}}],
            "envVars": {"LEGACY": "1"},
            "volumeMounts": [
                {"name": "geo", "mountPath": "/etc/geo"},
                {"name": "keys", "mountPath": "/etc/keys", "readOnly": True},
                {"name": "spark-local-dir-1", "mountPath": "/tmp/spark"},
            ],
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "zone", "operator": "In", "values": ["a"]}
                                ]
                            }
                        ]
                    }
                }
            },
            "sidecars": [{"name": "proxy", "image": "proxy:1"}],
            "initContainers": [{"name": "warm", "image": "warm:1"}],
            "podSecurityContext": {"runAsUser": 185},
            "securityContext": {"allowPrivilegeEscalation": False},
            "priorityClassName": "high",
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["broker"]}],
            "terminationGracePeriodSeconds": 30,
            "ports": [{"name": "jmx", "containerPort": 8090, "protocol": "TCP"}],
        },
        "executor": {
            "instances": 12,
            "cores": 4,
            "memory": "8g",
            "labels": {"app": "rmi"},
            "env": [{"name": "REGION", "value": "us"}],
            "gpu": {"name": "nvidia.com/gpu", "quantity": 1},
            "volumeMounts": [{"name": "spark-local-dir-1", "mountPath": "/tmp/spark"}],
            "template": {
                "metadata": {"annotations": {"own": "1"}},
                "spec": {"containers": [{"name": "mine", "env": [{"name": "A", "value": "1"}]}]},
            },
        },
    },
}

APACHE: Manifest = {
    "apiVersion": "spark.apache.org/v1",
    "kind": "SparkApplication",
    "metadata": {"name": "rmi", "namespace": "streaming", "labels": {"team": "ads"}},
    "spec": {
        "pyFiles": "local:///opt/app/main.py",
        "driverArgs": ["--brokers", "kafka:9092"],
        "sparkConf": {
            "spark.kubernetes.container.image": "registry.example/rmi:1.4",
            "spark.kubernetes.authenticate.driver.serviceAccountName": "rmi",
            "spark.executor.instances": "12",
            "spark.executor.cores": "4",
            "spark.executor.memory": "8g",
            "spark.dynamicAllocation.enabled": "true",
            "spark.sql.streaming.checkpointLocation": "s3a://prod/checkpoints",
            "spark.eventLog.enabled": "true",
        },
        "driverSpec": {
            "podTemplateSpec": {
                "metadata": {"labels": {"app": "rmi"}},
                "spec": {
                    "containers": [
                        {
                            "name": "spark-kubernetes-driver",
                            "env": [{"name": "REGION", "value": "us"}],
                        },
                        {"name": "proxy", "image": "proxy:1"},
                    ],
                    "tolerations": [{"key": "spot", "operator": "Exists"}],
                },
            }
        },
        "driverServiceIngressList": [
            {
                "ingressMetadata": {},
                "serviceMetadata": {"name": "ui"},
                "serviceSpec": {"ports": [{"port": 80}]},
            }
        ],
        "applicationTolerations": {
            "restartConfig": {"restartPolicy": "Always", "maxRestartAttempts": 9},
            "instanceConfig": {"minExecutors": 3},
            "applicationTimeoutConfig": {"driverStartTimeoutMillis": 600000},
            "resourceRetainPolicy": "Never",
        },
        "runtimeVersions": {"sparkVersion": "4.3.0", "scalaVersion": "2.13"},
    },
}


def production(base: Manifest, **spec: Any) -> Manifest:
    """A copy of a production SparkApplication with fields of its spec replaced; None removes
    one.
    """
    manifest = copy.deepcopy(base)
    manifest["spec"] = {
        key: value for key, value in (manifest["spec"] | spec).items() if value is not None
    }
    return manifest


def backfill_of(base: Manifest, **spec: Any) -> Backfill:
    """A Backfill of a production SparkApplication, with fields of its spec replaced."""
    old = BACKFILL.spec.to_manifest()
    reference = {"name": base["metadata"]["name"], "apiVersion": base["apiVersion"]}
    return Backfill.model_validate(
        {"metadata": BACKFILL.metadata, "spec": old | {"applicationRef": reference} | spec}
    )
