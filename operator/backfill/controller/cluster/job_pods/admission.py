"""Adapts the pod of a job to admission, and says what a person can do about a denial. Pure."""

import copy
from typing import Final

from backfill.controller.children.manifest_merge import part
from backfill.kube.request_errors import QUOTA
from backfill.kube.resources import Manifest

POD_SECURITY: Final = "violates PodSecurity"
"""Part of the message for a pod that a namespace's Pod Security level does not allow."""
SPARK_USER: Final = 185
"""User ID in Spark's own images."""
_DEFAULT_PROFILE = {"type": "RuntimeDefault"}
_FREE = ("privileged", "procMount", "sysctls", "windowsOptions")
"""Fields of a security context that only extend what a container may do."""
_HOST = ("hostNetwork", "hostPID", "hostIPC")
_LIMIT_RANGE = ("usage per Container", "usage per Pod", "max limit to request ratio")
_ADVICE = {
    POD_SECURITY: (
        "change these fields in the driver of the SparkApplication, or in overrides.driver"
    ),
    QUOTA: "raise the ResourceQuota, or lower spec.planning.resources",
    "must specify": "give every container of the driver's template requests and limits",
    "error looking up service account": (
        "create the ServiceAccount, or set another one in the driver of the SparkApplication"
    ),
} | dict.fromkeys(_LIMIT_RANGE, "choose spec.planning.resources within the LimitRange")
_OTHERWISE = (
    "change the driver of the SparkApplication or overrides.driver, or ask the owner of the policy"
)


def confined(context: Manifest) -> Manifest:
    """A container's security context with everything restricted that any image can do without."""
    profile = context.get("seccompProfile") or {}
    return {
        **{field: value for field, value in context.items() if field not in _FREE},
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": profile if profile.get("type") == "Localhost" else _DEFAULT_PROFILE,
    }


def restricted(pod: Manifest) -> Manifest:
    """The pod as Pod Security ``restricted`` requires it.

    Only volumes that this level forbids stay.

    If no user is set, it is that of Spark's images: the level requires one that is not root, and
    images may name none, or root.
    """
    fitted = copy.deepcopy(pod)
    spec = part(fitted, "spec")
    for field in _HOST:
        spec.pop(field, None)
    given = spec.get("securityContext") or {}
    kept = {
        field: value
        for field, value in confined(given).items()
        if field not in ("allowPrivilegeEscalation", "capabilities")
    }
    spec["securityContext"] = _not_root(kept) | {"runAsUser": given.get("runAsUser") or SPARK_USER}
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        container["securityContext"] = _not_root(confined(container.get("securityContext") or {}))
        for port in container.get("ports") or ():
            port.pop("hostPort", None)
    return fitted


def advice(denied: str) -> str:
    """What a person can do about a denial, by its message."""
    return next((fix for words, fix in _ADVICE.items() if words in denied), _OTHERWISE)


def _not_root(context: Manifest) -> Manifest:
    left_out = {"seLinuxOptions", "appArmorProfile"} | (
        {"runAsUser"} if context.get("runAsUser") == 0 else set()
    )
    return {field: value for field, value in context.items() if field not in left_out} | {
        "runAsNonRoot": True
    }
