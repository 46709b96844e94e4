"""Dialect of Kubeflow's Spark operator, ``sparkoperator.k8s.io/v1beta2``."""

from typing import Any, Final

from backfill.api.backfill import Backfill
from backfill.api.errors import Problem
from backfill.api.pods import PodOverrides
from backfill.api.quantities import parse_time
from backfill.controller.children.dialect import (
    KEPT_SECONDS,
    ChildState,
    child_metadata,
    default_conf,
    not_scraped,
    pod_labels,
)
from backfill.controller.children.inherited_spark_conf import (
    accepted_by_kubeflow,
    inherited,
    live_override_problems,
    of_another_application,
    override_problems,
)
from backfill.controller.children.injection import (
    inject_catalogs,
    inject_driver,
    inject_live,
    pod_settings,
)
from backfill.controller.children.launcher import LAUNCHER_URI
from backfill.controller.children.live_manifests import (
    hand_off_of,
    live_metadata,
    live_pod,
    live_settings,
)
from backfill.controller.children.manifest_merge import merged, without
from backfill.controller.children.memory_overhead import FACTOR
from backfill.controller.children.pod_template import (
    Role,
    end_with_spark,
    spark_container,
    take_template,
)
from backfill.controller.children.program import Program, program_problems
from backfill.controller.children.sizing import Sizing
from backfill.controller.driver import Launch
from backfill.kube.resources import SPARK_APPLICATION, Manifest

API_VERSION: Final = "sparkoperator.k8s.io/v1beta2"

_REPLACED = (
    "arguments",
    "mainApplicationFile",
    "mainClass",
    "restartPolicy",
    "failureRetries",
    "retryInterval",
    "suspend",
)
"""Fields that a backfill decides itself, or that a Spark operator or Kueue acts on."""
_LEFT_OUT = (
    "monitoring",
    "sparkUIOptions",
    "driverIngressOptions",
    "dynamicAllocation",
    "timeToLiveSeconds",
)
_ROLES: Final[tuple[Role, Role]] = ("driver", "executor")
_POD_LEFT_OUT = ("ports", "podName", "instances")
_IMAGE = "spark.kubernetes.{}container.image"
_ACCOUNT = "spark.kubernetes.authenticate.{}.serviceAccountName"
_WAITING = {
    "": ("NotSubmitted", ""),
    "SUBMITTED": ("Submitted", ""),
    "SUSPENDED": ("Suspended", ""),
    "SUSPENDING": ("Suspended", "the SparkApplication is being suspended"),
    "RESUMING": ("Suspended", "the SparkApplication is being resumed"),
    "PENDING_RERUN": ("Submitted", "the SparkApplication is being submitted again"),
    "INVALIDATING": (
        "Submitted",
        "the SparkApplication is being submitted again, because its spec was edited",
    ),
}
_OVER = {"COMPLETED": "Completed", "FAILED": "Failed", "SUBMISSION_FAILED": "SubmissionFailed"}


class Kubeflow:
    """Kubeflow's dialect."""

    resource = SPARK_APPLICATION

    def sizing(self, production: Manifest, backfill: Backfill) -> Sizing:
        """Sizes of the pods."""
        spec = _tuned(production, backfill)
        conf = dict(production["spec"].get("sparkConf") or {})
        if factor := spec.get("memoryOverheadFactor"):
            conf[FACTOR] = factor
        return Sizing.of(spec["driver"], spec["executor"], conf, backfill)

    def problems(self, production: Manifest, backfill: Backfill) -> list[Problem]:
        """Reasons why there can be no child: not a Python program, a program that pods cannot read,
        or overrides that are not allowed.
        """
        spec = production.get("spec") or {}
        where = f"SparkApplication/{production['metadata']['name']}: spec"
        problems = []
        if spec.get("type") != "Python":
            kind = f'"{spec.get("type")}" cannot be rerun'
            problems.append(
                Problem(f"{where}.type", kind, "only applications of type Python can be rerun")
            )
        problems += program_problems(
            spec.get("mainApplicationFile") or "", f"{where}.mainApplicationFile"
        )
        problems += override_problems(backfill.spec.overrides.spark_conf, kubeflow=True)
        for role, field, fix in (
            ("driver", "podName", "remove it"),
            ("executor", "instances", "set spec.scaling"),
        ):
            overrides: PodOverrides = getattr(backfill.spec.overrides, role)
            if field in (overrides.model_extra or {}):
                problems.append(
                    Problem(f"spec.overrides.{role}.{field}", "cannot be set for a backfill", fix)
                )
        if not problems and not _images(_tuned(production, backfill)):
            problems.append(
                Problem(f"{where}.image", "is missing", "set the image of driver and executors")
            )
        return problems

    def child(self, production: Manifest, launch: Launch) -> Manifest:
        """The child of an attempt: production's spec with the overrides,
        and with the runtime in its pods.
        """
        backfill = launch.backfill
        spec, sizing = _tuned(production, backfill), self.sizing(production, backfill)
        overrides = backfill.spec.overrides.spark_conf
        program = Program.at(
            production["spec"]["mainApplicationFile"],
            tuple(production["spec"].get("arguments") or ()),
        )
        enforced = sizing.enforced_conf() | overrides
        settings = pod_settings(
            launch, program, enforced, production["spec"].get("sparkConf") or {}
        )
        metadata = child_metadata(production, launch, _left_out(production))
        driver, executor = (_pod(spec, role, launch, production) for role in _ROLES)
        inject_driver(
            driver["template"],
            spark_container(driver["template"], "driver"),
            settings,
            metadata["name"],
        )
        child: Manifest = without(spec, ("driver", "executor", "volumes", "hadoopConfigMap"))
        child |= {
            "type": "Python",
            "mode": "cluster",
            "pythonVersion": spec.get("pythonVersion") or "3",
            "mainApplicationFile": LAUNCHER_URI,
            "restartPolicy": {"type": "Never"},
            "timeToLiveSeconds": KEPT_SECONDS,
            "driver": _sized(driver, sizing.driver_fields()),
            "executor": (
                _sized(executor, sizing.executor_fields()) | {"instances": sizing.executors}
            ),
            "sparkConf": _conf(production, launch, enforced | sizing.partitions()) | overrides,
        }
        if volumes := _mounted_volumes(spec, driver, executor):
            child["volumes"] = volumes
        return {
            "apiVersion": API_VERSION,
            "kind": "SparkApplication",
            "metadata": metadata,
            "spec": child,
        }

    def live_problems(self, backfill: Backfill) -> list[Problem]:
        """Overrides of the live application that are not allowed."""
        overrides = hand_off_of(backfill).overrides
        problems = live_override_problems(overrides.spark_conf, kubeflow=True)
        if "podName" in (overrides.driver.model_extra or {}):
            where = "spec.handOff.overrides.driver.podName"
            problems.append(Problem(where, "cannot be set here", "remove it"))
        return problems

    def live(self, production: Manifest, backfill: Backfill) -> Manifest:
        """The live application: production's spec with the overrides of the hand-off, and with a
        driver that says how far it is behind Kafka.
        """
        old = production["spec"]
        program = Program.at(old["mainApplicationFile"], tuple(old.get("arguments") or ()))
        driver, executor = (live_pod(old, backfill, role) for role in _ROLES)
        for role, pod in zip(_ROLES, (driver, executor), strict=True):
            pod["template"] = take_template(pod, role, old)
        template = driver["template"]
        inject_live(template, spark_container(template, "driver"), live_settings(backfill, program))
        spec = without(old, ("arguments", "suspend", "volumes", "hadoopConfigMap"))
        spec |= {
            "mainApplicationFile": LAUNCHER_URI,
            "driver": driver,
            "executor": executor,
            "sparkConf": of_another_application(old.get("sparkConf") or {})
            | hand_off_of(backfill).overrides.spark_conf,
        }
        if volumes := _mounted_volumes(old, driver, executor):
            spec["volumes"] = volumes
        return {
            "apiVersion": API_VERSION,
            "kind": "SparkApplication",
            "metadata": live_metadata(production, backfill),
            "spec": spec,
        }

    def pods(self, child: Manifest) -> tuple[Manifest, Manifest]:
        """The pod templates of a child's driver and executors."""
        return child["spec"]["driver"]["template"], child["spec"]["executor"]["template"]

    def state(self, child: Manifest) -> ChildState:
        """The state of a child, as its Spark operator reports it."""
        status = child.get("status") or {}
        application = status.get("applicationState") or {}
        state, error = application.get("state") or "", application.get("errorMessage") or ""
        if state in _WAITING:
            since = status.get("lastSubmissionAttemptTime") or child["metadata"].get(
                "creationTimestamp"
            )
            return ChildState(
                "Waiting", *_WAITING[state], since=parse_time(since) if since else None
            )
        ended = status.get("terminationTime")
        since = parse_time(ended) if ended else None
        if state in _OVER:
            return ChildState("Over", _OVER[state], error, since)
        return ChildState("Running", state.capitalize(), error)


def _tuned(production: Manifest, backfill: Backfill) -> Manifest:
    """The inherited part of production's spec, with the overrides."""
    conf = production["spec"].get("sparkConf") or {}
    spec = without(production["spec"], (*_REPLACED, *_LEFT_OUT, "sparkConf"))
    if image := conf.get(_IMAGE.format("")):
        spec.setdefault("image", image)
    for role in ("driver", "executor"):
        overrides = getattr(backfill.spec.overrides, role).model_dump(
            mode="json", by_alias=True, exclude_unset=True
        )
        old = without(spec.get(role) or {}, _POD_LEFT_OUT)
        if old.get("annotations"):
            old["annotations"] = not_scraped(old["annotations"])
        for field, key in (
            ("serviceAccount", _ACCOUNT.format(role)),
            ("image", _IMAGE.format(f"{role}.")),
        ):
            if value := conf.get(key):
                old.setdefault(field, value)
        if overrides.get("memory") and "memoryLimit" not in overrides:
            # it was chosen for production's memory, and may be less than the new request
            old.pop("memoryLimit", None)
        spec[role] = merged(old, overrides)
    return spec


def _pod(spec: Manifest, role: Role, launch: Launch, production: Manifest) -> Manifest:
    pod: Manifest = dict(spec[role])
    template = take_template(pod, role, spec)
    end_with_spark(template, role)
    inject_catalogs(template, spark_container(template, role), launch.backfill, production)
    pod["template"] = template
    pod["labels"] = (pod.get("labels") or {}) | pod_labels(launch)
    return pod


def _sized(pod: Manifest, fields: Manifest) -> Manifest:
    """Sets the size of a pod. A limit chosen for production's memory may be less than the new
    request, so it is removed.
    """
    return (without(pod, ("memoryLimit",)) if "memoryOverhead" in fields else pod) | fields


def _conf(production: Manifest, launch: Launch, enforced: dict[str, str]) -> dict[str, str]:
    conf = default_conf(launch) | accepted_by_kubeflow(
        inherited(production["spec"].get("sparkConf") or {})
    )
    # the others are separate fields here
    kept = ("spark.dynamicAllocation.enabled", "spark.sql.shuffle.partitions")
    return conf | {key: enforced[key] for key in kept}


def _mounted_volumes(spec: Manifest, *pods: Manifest) -> list[Any]:
    """Volumes that are not moved into a template."""
    mounted = {mount["name"] for pod in pods for mount in pod.get("volumeMounts") or []}
    return [volume for volume in spec.get("volumes") or [] if volume["name"] in mounted]


def _images(spec: Manifest) -> bool:
    return bool(
        spec.get("image") or (spec["driver"].get("image") and spec["executor"].get("image"))
    )


def _left_out(production: Manifest) -> list[str]:
    spec = production["spec"]
    conf = spec.get("sparkConf") or {}
    kept = accepted_by_kubeflow(inherited(conf))
    return [f"spec.{field}" for field in _LEFT_OUT if spec.get(field)] + [
        f"spec.sparkConf[{key}]" for key in conf if key not in kept
    ]
