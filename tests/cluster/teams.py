"""A namespace with a streaming application in production and all that it needs, as a team has
it.
"""

from pathlib import Path

from images import SPARK
from live_cluster import Cluster
from rest import BACKFILLS, Manifest
from storage import Storage

from installed_spark import INSTALLED
from small_java import PLANNED_NOT_COMPILED, QUICK

ACCOUNT = "spark"
CATALOG_SECRET = "lake-catalog"
OTHER_SECRET = "other-catalog"
APPLICATION = "hourly-plays"
PROGRAM = Path(__file__).with_name("hourly_plays.py")
_SPARK_MAY: list[Manifest] = [
    {
        "apiGroups": [""],
        "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"],
        "verbs": [
            "create",
            "get",
            "list",
            "watch",
            "update",
            "patch",
            "delete",
            "deletecollection",
        ],
    }
]
"""What Spark itself asks for its drivers."""
_QUOTA: Manifest = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "team"},
    "spec": {
        "hard": {
            "requests.cpu": "4",
            "limits.cpu": "40",
            "requests.memory": "32Gi",
            "limits.memory": "32Gi",
            "pods": "20",
        }
    },
}
_LIMITS: Manifest = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "team"},
    "spec": {
        "limits": [
            {
                "type": "Container",
                "min": {"cpu": "10m", "memory": "64Mi"},
                "max": {"cpu": "4", "memory": "8Gi"},
                "default": {"cpu": "2", "memory": "512Mi"},
                "defaultRequest": {"cpu": "100m", "memory": "128Mi"},
            }
        ]
    },
}
"""A quota admits only pods that say what they need. Spark says it of all but the limit of CPU."""
_USER = {
    "runAsNonRoot": True,
    "runAsUser": 185,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


class Team:
    """One namespace."""

    def __init__(self, cluster: Cluster, namespace: str, storage: Storage):
        self.cluster = cluster
        self.namespace = namespace
        self.storage = storage

    @property
    def served(self) -> Manifest:
        """This namespace among the chart's values."""
        return {"name": self.namespace, "drivers": [ACCOUNT]}

    def make(self) -> None:
        """Makes the namespace with its limits, the account of drivers, the catalog's Secret and the
        application.
        """
        self.cluster.make_namespace(self.namespace, self.storage.volumes_of(self.namespace))
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
        account, rbac = {"metadata": {"name": ACCOUNT}}, "rbac.authorization.k8s.io/v1"
        program = {"metadata": {"name": APPLICATION}, "data": {"main.py": PROGRAM.read_text()}}
        self.apply(
            _QUOTA,
            _LIMITS,
            {"apiVersion": "v1", "kind": "ServiceAccount", **account},
            {"apiVersion": rbac, "kind": "Role", **account, "rules": _SPARK_MAY},
            {
                "apiVersion": rbac,
                "kind": "RoleBinding",
                **account,
                "roleRef": role,
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT}],
            },
            self.secret(CATALOG_SECRET, **self.storage.properties),
            {"apiVersion": "v1", "kind": "ConfigMap", **program},
            production(self.storage),
        )

    def apply(self, *manifests: Manifest) -> None:
        """``kubectl apply``."""
        self.cluster.kubectl(self.namespace, "apply", "-f", "-", manifests=manifests)

    def secret(self, name: str, **values: str) -> Manifest:
        """A Secret with these values."""
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": values,
        }

    def items(self, path: str, **query: str) -> list[Manifest]:
        """Objects of this namespace; in ``path`` it is written as ``{}``."""
        return self.cluster.items(path.format(self.namespace), **query)

    def story(self) -> str:
        """What happened, for a test that failed."""
        told = (
            ("get", "backfills,sparkapplications,pods", "--output", "wide"),
            ("get", "backfills,splitassignments", "--output", "yaml"),
            ("get", "events", "--sort-by=.metadata.creationTimestamp"),
            ("logs", "--selector", "backfill.dev/job", "--tail", "40", "--prefix"),
            ("logs", "--selector", "spark-role=driver", "--tail", "80", "--prefix"),
            ("logs", "--selector", "spark-role=executor", "--tail", "15", "--prefix"),
        )
        return "\n".join(self.cluster.tell(self.namespace, *words) for words in told)

    def backfills_gone(self) -> bool:
        """Whether no Backfill is left."""
        return not self.items(BACKFILLS)

    def remove(self) -> None:
        """Deletes the namespace."""
        self.cluster.remove_namespace(self.namespace)


def production(storage: Storage) -> Manifest:
    """The SparkApplication as it runs in production; there is no Kafka here, so it is not
    started.
    """
    program = {"name": "program", "configMap": {"name": APPLICATION}}
    mounts = [{"name": "program", "mountPath": "/opt/application"}, *storage.mounts]
    variables = {"KAFKA_BROKERS": "kafka.production:9092", "CHECKPOINTS": "/production/checkpoints"}
    env = [{"name": name, "value": value} for name, value in variables.items()]
    size = {"cores": 1, "coreRequest": "100m", "memory": "1g"}
    size |= {"podSecurityContext": _USER, "securityContext": _CONTAINER}
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": APPLICATION, "labels": {"team": "streaming"}},
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "sparkVersion": f"{INSTALLED}.0",
            "image": SPARK,
            "imagePullPolicy": "IfNotPresent",
            "mainApplicationFile": "local:///opt/application/main.py",
            "restartPolicy": {"type": "Always"},
            "suspend": True,
            "sparkConf": PLANNED_NOT_COMPILED
            | {
                "spark.sql.shuffle.partitions": "16",
                "spark.dynamicAllocation.enabled": "true",
                "spark.driver.extraJavaOptions": QUICK,
                "spark.executor.extraJavaOptions": QUICK,
            },
            "volumes": [program, *storage.volumes],
            "driver": size | {"serviceAccount": ACCOUNT, "env": env, "volumeMounts": mounts},
            "executor": size | {"instances": 3, "volumeMounts": storage.mounts},
        },
    }
