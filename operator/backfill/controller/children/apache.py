"""Dialect of Apache's Spark Kubernetes operator, ``spark.apache.org/v1``.

The size of pods, the image and the service account are Spark properties there, and everything else
of a pod is in its template.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from backfill.api.backfill import Backfill
from backfill.api.errors import Problem
from backfill.api.pods import Overrides, PodOverrides
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
    live_settings,
)
from backfill.controller.children.manifest_merge import merged, part, without
from backfill.controller.children.pod_template import Role, end_with_spark, spark_container
from backfill.controller.children.program import Program, program_problems
from backfill.controller.children.sizing import Sizing
from backfill.controller.driver import Launch
from backfill.kube.resources import Manifest, Resource

API_VERSION: Final = "spark.apache.org/v1"

_REPLACED = ("driverArgs", "pyFiles", "suspend", "deploymentMode")
_LEFT_OUT = ("driverServiceIngressList", "driverHttpRouteList", "driverGrpcRouteList")
_TOLERATIONS_LEFT_OUT = ("restartConfig", "instanceConfig", "resourceRetainDurationMillis")
_RUNNER = "org.apache.spark.deploy.PythonRunner"
"""The class that runs a Python program. Without it, this Spark operator adds the program to
``spark.submit.pyFiles``, as if it were a module that tasks import.
"""
_IMAGE = "spark.kubernetes.{}container.image"
_PROPERTIES = {
    "memoryOverhead": "spark.{}.memoryOverhead",
    "image": _IMAGE.format("{}."),
    "serviceAccount": "spark.kubernetes.authenticate.{}.serviceAccountName",
}
"""Overrides that are fields of a pod in other dialects and Spark properties here."""
_TEMPLATE = "podTemplateSpec"
_WAITING = {
    "": ("NotSubmitted", ""),
    "Submitted": ("Submitted", "the Spark operator has not requested the driver yet"),
    "ScheduledToRestart": ("Submitted", "the SparkApplication is being submitted again"),
    "DriverRequested": ("Submitted", "the driver was requested but has no pod yet"),
}
_RUNNING = (
    "DriverStarted",
    "DriverReady",
    "InitializedBelowThresholdExecutors",
    "RunningHealthy",
    "RunningWithPartialCapacity",
    "RunningWithBelowThresholdExecutors",
)
_RELEASED = ("ResourceReleased", "TerminatedWithoutReleaseResources")
_NANOSECONDS = re.compile(r"(?<=\.\d{6})\d+")


class Apache:
    """Apache's dialect."""

    resource = Resource("spark.apache.org", "v1", "sparkapplications")

    def sizing(self, production: Manifest, backfill: Backfill) -> Sizing:
        """Sizes of the pods."""
        driver, executor = _overrides(backfill, "driver"), _overrides(backfill, "executor")
        return Sizing.of(driver, executor, production["spec"].get("sparkConf") or {}, backfill)

    def problems(self, production: Manifest, backfill: Backfill) -> list[Problem]:
        """Reasons why there can be no child: not a Python program, a program that pods cannot read,
        or overrides that are not allowed.
        """
        spec = production.get("spec") or {}
        where = f"SparkApplication/{production['metadata']['name']}: spec"
        problems = program_problems(_files(spec)[0], f"{where}.pyFiles")
        if spec.get("jars"):
            problems.append(
                Problem(
                    f"{where}.jars",
                    "is what this Spark operator runs, instead of the program in pyFiles",
                    "name libraries in sparkConf[spark.jars]",
                )
            )
        problems += override_problems(backfill.spec.overrides.spark_conf, kubeflow=False)
        problems += _unknown_fields(backfill.spec.overrides, "spec.overrides")
        conf = (spec.get("sparkConf") or {}) | _override_conf(backfill.spec.overrides)
        images = [conf.get(_IMAGE.format(part)) for part in ("", "driver.", "executor.")]
        if not (images[0] or (images[1] and images[2])):
            problems.append(
                Problem(f"{where}.sparkConf[{_IMAGE.format('')}]", "is missing", "set the image")
            )
        return problems

    def child(self, production: Manifest, launch: Launch) -> Manifest:
        """The child of an attempt: production's spec with the overrides,
        and with the runtime in its pods.
        """
        backfill, old = launch.backfill, production["spec"]
        main, *modules = _files(old)
        program = Program.at(main, tuple(old.get("driverArgs") or ()))
        enforced = (
            self.sizing(production, backfill).enforced_conf() | backfill.spec.overrides.spark_conf
        )
        settings = pod_settings(launch, program, enforced, old.get("sparkConf") or {})
        metadata = child_metadata(production, launch, _left_out(old))
        spec = without(old, (*_REPLACED, *_LEFT_OUT, "sparkConf"))
        spec["driverSpec"] = _pod(spec.get("driverSpec"), "driver", launch, production)
        spec["executorSpec"] = _pod(spec.get("executorSpec"), "executor", launch, production)
        driver = spec["driverSpec"][_TEMPLATE]
        inject_driver(driver, spark_container(driver, "driver"), settings, metadata["name"])
        conf = self._conf(production, launch) | enforced
        _append(conf, "spark.submit.pyFiles", modules)
        spec |= {
            "mainClass": _RUNNER,
            "pyFiles": LAUNCHER_URI,
            "deploymentMode": "ClusterMode",
            "sparkConf": conf,
            "applicationTolerations": _tolerations(old.get("applicationTolerations") or {}),
        }
        return {
            "apiVersion": API_VERSION,
            "kind": "SparkApplication",
            "metadata": metadata,
            "spec": spec,
        }

    def live_problems(self, backfill: Backfill) -> list[Problem]:
        """Overrides of the live application that are not allowed."""
        overrides = hand_off_of(backfill).overrides
        problems = live_override_problems(overrides.spark_conf, kubeflow=False)
        return [*problems, *_unknown_fields(overrides, "spec.handOff.overrides")]

    def live(self, production: Manifest, backfill: Backfill) -> Manifest:
        """The live application: production's spec with the overrides of the hand-off, and with a
        driver that says how far it is behind Kafka.
        """
        old, overrides = production["spec"], hand_off_of(backfill).overrides
        main, *modules = _files(old)
        program = Program.at(main, tuple(old.get("driverArgs") or ()))
        spec = without(old, ("driverArgs", "suspend"))
        for role, field in (("driver", "driverSpec"), ("executor", "executorSpec")):
            over = _pod_fields(overrides, role).get(_TEMPLATE) or {}
            spec[field] = merged(old.get(field) or {}, {_TEMPLATE: over})
        driver = part(spec["driverSpec"], _TEMPLATE)
        settings = live_settings(backfill, program)
        inject_live(driver, spark_container(driver, "driver"), settings)
        conf = of_another_application(old.get("sparkConf") or {})
        conf |= _override_conf(overrides) | _sizes(overrides) | overrides.spark_conf
        _append(conf, "spark.submit.pyFiles", modules)
        spec |= {"mainClass": _RUNNER, "pyFiles": LAUNCHER_URI, "sparkConf": conf}
        return {
            "apiVersion": API_VERSION,
            "kind": "SparkApplication",
            "metadata": live_metadata(production, backfill),
            "spec": spec,
        }

    def pods(self, child: Manifest) -> tuple[Manifest, Manifest]:
        """The pod templates of a child's driver and executors."""
        return child["spec"]["driverSpec"][_TEMPLATE], child["spec"]["executorSpec"][_TEMPLATE]

    def state(self, child: Manifest) -> ChildState:
        """The state of a child, as its Spark operator reports it."""
        status = child.get("status") or {}
        current = status.get("currentState") or {}
        summary = current.get("currentStateSummary") or ""
        when = current.get("lastTransitionTime") or child["metadata"].get("creationTimestamp")
        since = _time(when) if when else None
        if summary in _WAITING:
            return ChildState("Waiting", *_WAITING[summary], since=since)
        if summary in _RUNNING:
            return ChildState("Running", summary, current.get("message") or "", since)
        ended = _end(status) if summary in _RELEASED else current
        return ChildState(
            "Over", ended.get("currentStateSummary") or summary, ended.get("message") or "", since
        )

    def _conf(self, production: Manifest, launch: Launch) -> dict[str, str]:
        sizing = self.sizing(production, launch.backfill)
        conf = default_conf(launch) | inherited(production["spec"].get("sparkConf") or {})
        conf |= sizing.partitions()
        conf |= {
            f"spark.driver.{field}": str(value) for field, value in sizing.driver_fields().items()
        }
        conf |= {
            f"spark.executor.{field}": str(value)
            for field, value in sizing.executor_fields().items()
        }
        return conf | _override_conf(launch.backfill.spec.overrides)


def _files(spec: Manifest) -> list[str]:
    """The main program, and the modules that it imports."""
    return [file.strip() for file in (spec.get("pyFiles") or "").split(",")]


def _overrides(backfill: Backfill, role: str) -> dict[str, Any]:
    return _pod_fields(backfill.spec.overrides, role)


def _pod_fields(overrides: Overrides, role: str) -> dict[str, Any]:
    pod: PodOverrides = getattr(overrides, role)
    return pod.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _unknown_fields(overrides: Overrides, where: str) -> Iterator[Problem]:
    known = (*PodOverrides.model_fields, *_PROPERTIES, _TEMPLATE)
    for role in ("driver", "executor"):
        for field in _pod_fields(overrides, role):
            if field not in known:
                yield Problem(
                    f"{where}.{role}.{field}",
                    "is not a field supported by this Spark operator",
                    f"set pod fields under {_TEMPLATE}; allowed fields here: {', '.join(known)}",
                )


def _override_conf(overrides: Overrides) -> dict[str, str]:
    return _as_properties(overrides, _PROPERTIES)


def _sizes(overrides: Overrides) -> dict[str, str]:
    """Cores and memory, which a live application leaves to production unless they are given."""
    return _as_properties(overrides, {"cores": "spark.{}.cores", "memory": "spark.{}.memory"})


def _as_properties(overrides: Overrides, names: Mapping[str, str]) -> dict[str, str]:
    conf: dict[str, str] = {}
    for role in ("driver", "executor"):
        fields = _pod_fields(overrides, role)
        conf |= {
            name.format(role): str(fields[field])
            for field, name in names.items()
            if fields.get(field)
        }
    return conf


def _pod(given: Manifest | None, role: Role, launch: Launch, production: Manifest) -> Manifest:
    over = {_TEMPLATE: _overrides(launch.backfill, role).get(_TEMPLATE) or {}}
    pod: Manifest = merged(given or {}, over)
    template = pod[_TEMPLATE]
    end_with_spark(template, role)
    metadata = part(template, "metadata")
    metadata["annotations"] = not_scraped(metadata.get("annotations"))
    part(metadata, "labels").update(pod_labels(launch))
    inject_catalogs(template, spark_container(template, role), launch.backfill, production)
    return pod


def _tolerations(old: Manifest) -> Manifest:
    """Keeps the pod of a driver that has ended, because it shows how it ended."""
    kept = without(old, _TOLERATIONS_LEFT_OUT)
    return kept | {
        "restartConfig": {"restartPolicy": "Never"},
        "resourceRetainPolicy": "Always",
        "ttlAfterStopMillis": KEPT_SECONDS * 1000,
    }


def _append(conf: dict[str, str], key: str, files: list[str]) -> None:
    if files:
        conf[key] = ",".join([*filter(None, [conf.get(key)]), *files])


def _end(status: Manifest) -> Manifest:
    """The last state before the resources were released, which says how the application ended."""
    history = status.get("stateTransitionHistory") or {}
    states = [history[number] for number in sorted(history, key=int)]
    ends: list[Manifest] = [
        state for state in states if state.get("currentStateSummary") not in _RELEASED
    ]
    return ends[-1] if ends else {}


def _time(value: str) -> datetime:
    """A time of the status, which this Spark operator writes to the nanosecond."""
    return parse_time(_NANOSECONDS.sub("", value))


def _left_out(spec: Manifest) -> list[str]:
    conf = spec.get("sparkConf") or {}
    kept = inherited(conf)
    left_out = [f"spec.sparkConf[{key}]" for key in conf if key not in kept]
    return [f"spec.{field}" for field in _LEFT_OUT if spec.get(field)] + left_out
