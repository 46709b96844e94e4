"""What the live SparkApplications of all Spark operators have in common: production's, under a name
of their own, with a driver that says how far it is behind Kafka.
"""

from collections.abc import Iterator
from typing import Any

from backfill.api.backfill import Backfill
from backfill.api.errors import Problem
from backfill.api.hand_off import HandOff
from backfill.controller.children.dialect import kept_metadata
from backfill.controller.children.manifest_merge import merged, without
from backfill.controller.children.program import Program
from backfill.kube.object_names import (
    BACKFILL_LABEL,
    LIVE_LABEL,
    UID_LABEL,
    is_child_name,
    live_name,
)
from backfill.kube.resources import Manifest
from backfill.protocol.hand_off_messages import LiveSettings


def deploys(backfill: Backfill) -> bool:
    """Whether there will be a live application."""
    wanted = backfill.spec.hand_off
    return wanted is not None and wanted.start == "Deploy"


def hand_off_of(backfill: Backfill) -> HandOff:
    """The hand-off of a Backfill that has one."""
    wanted = backfill.spec.hand_off
    if wanted is None:
        raise AssertionError("nothing is handed over")
    return wanted


def name_of_live(backfill: Backfill) -> str:
    """Name of the live application: the recorded one, or else that of the spec."""
    recorded = backfill.status.hand_off.application if backfill.status.hand_off else None
    return recorded or hand_off_of(backfill).name or live_name(backfill.metadata.name)


def live_problems(production: Manifest, backfill: Backfill) -> Iterator[Problem]:
    """Reasons why there can be no live application, for any Spark operator."""
    name = name_of_live(backfill)
    if is_child_name(name, backfill.metadata.name):
        yield Problem(
            "spec.handOff.name",
            f'"{name}" is the name of an attempt\'s SparkApplication',
            "use another name for the live SparkApplication",
        )
    for role in ("driver", "executor"):
        key = f"spark.kubernetes.{role}.podTemplateFile"
        if key in (production["spec"].get("sparkConf") or {}):
            yield Problem(
                f"SparkApplication/{production['metadata']['name']}: spec.sparkConf[{key}]",
                "has no effect in the live application, whose pods have their own templates",
                "put the template in the SparkApplication itself, or set handOff.start: Prepare"
                " and start the application yourself",
            )


def live_metadata(production: Manifest, backfill: Backfill) -> Manifest:
    """Metadata of the live application: labels and annotations of production, and where it comes
    from. It has no owner, since it outlives its Backfill.
    """
    metadata, old = backfill.metadata, production.get("metadata", {})
    ours = {BACKFILL_LABEL: metadata.name, UID_LABEL: metadata.uid, LIVE_LABEL: "true"}
    return {
        "name": name_of_live(backfill),
        "namespace": metadata.namespace,
        "labels": kept_metadata(old.get("labels")) | ours,
        "annotations": kept_metadata(old.get("annotations")),
    }


def live_pod(production: Manifest, backfill: Backfill, role: str) -> Manifest:
    """Driver or executor of production's spec with the overrides of the hand-off."""
    overrides: dict[str, Any] = getattr(hand_off_of(backfill).overrides, role).model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    old = without(production.get(role) or {}, ("podName",))
    if overrides.get("memory") and "memoryLimit" not in overrides:
        # it was chosen for production's memory, and may be less than the new request
        old.pop("memoryLimit", None)
    pod: Manifest = merged(old, overrides)
    return pod


def live_settings(backfill: Backfill, program: Program) -> LiveSettings:
    """Settings of the live application's driver."""
    return LiveSettings(
        namespace=backfill.metadata.namespace,
        backfill=backfill.metadata.name,
        uid=backfill.metadata.uid,
        main_file=program.main_file,
        arguments=program.arguments,
    )
